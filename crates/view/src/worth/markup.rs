//! Text that is safe inside XML and fits its box.

pub use lemon_trace::export::escape;

/// A text as one line, cut so that it fits `room` in a system font of this size, and escaped.
pub fn fit(text: &str, room: f64, size: f64) -> String {
    // No line is as long as this; a text may be.
    let line: String = text.split_whitespace().take(200).collect::<Vec<_>>().join(" ");
    if width(&line, size) <= room {
        return escape(&line);
    }
    let mut left = room - em('…') * size;
    let fits = |char: &char| {
        left -= em(*char) * size;
        left >= 0.0
    };
    let cut: String = line.chars().take_while(fits).collect();
    format!("{}…", escape(cut.trim_end()))
}

/// A text broken into lines that fit `room`, not escaped.
pub fn wrapped(text: &str, room: f64, size: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(word, size) + em(' ') * size <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// About how wide a text is.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(em).sum::<f64>() * size
}

/// About how wide a character is: system fonts differ, so rather too wide than too narrow.
fn em(char: char) -> f64 {
    match char {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.32,
        'f' | 'r' | 't' | '(' | ')' | '[' | ']' | '-' | '/' => 0.42,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 0.92,
        '0'..='9' => 0.62,
        '−' | '±' => 0.8,
        'A'..='Z' | '_' | '+' | '=' | '<' | '>' | '~' => 0.7,
        '\u{1100}'.. => 1.05,
        _ => 0.58,
    }
}

pub fn translated(x: f64, y: f64, attributes: &str, body: &str) -> String {
    format!("<g{attributes} transform=\"translate({x:.1} {y:.1})\">{body}</g>\n")
}
