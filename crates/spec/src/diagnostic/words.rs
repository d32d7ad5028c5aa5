//! How messages and hints speak of what they found.

/// The longest piece of the author's text that a message repeats, in bytes.
const QUOTED_BYTES: usize = 64;

/// A piece of the author's text in backticks: shortened, and without characters that could upset a terminal.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::from("`");
    for character in text.chars() {
        if quoted.len() > QUOTED_BYTES {
            quoted.push('…');
            break;
        }
        if character.is_control() || is_invisible(character) {
            quoted.extend(character.escape_default());
        } else {
            quoted.push(character);
        }
    }
    quoted.push('`');
    quoted
}

/// Characters that change how the text around them is shown without being seen themselves.
pub(crate) fn is_invisible(character: char) -> bool {
    matches!(character, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// “did you mean `critic`?”, if one of the candidates is close enough to be what was meant.
pub(crate) fn did_you_mean<'c>(written: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<String> {
    // Long words cost quadratic time and are not typing errors for one of ours.
    if written.len() > 128 {
        return None;
    }
    let lower = written.to_lowercase();
    let similarity = |candidate: &str| strsim::jaro_winkler(&lower, &candidate.to_lowercase());
    let closest = candidates.into_iter().map(|candidate| (similarity(candidate), candidate));
    // Of equally close candidates the first wins, so that the hint is stable.
    let closest = closest.fold(None, |best: Option<(f64, &str)>, next| match best {
        Some(best) if best.0 >= next.0 => Some(best),
        _ => Some(next),
    });
    closest.filter(|(similarity, _)| *similarity > 0.8).map(|(_, candidate)| format!("did you mean `{candidate}`?"))
}

/// “did you mean …?”, or else the list of everything that could stand there.
pub(crate) fn one_of<'c>(written: &str, known: impl IntoIterator<Item = &'c str> + Clone) -> String {
    did_you_mean(written, known.clone()).unwrap_or_else(|| format!("known here: {}", list(known)))
}

/// `a`, `b`, `c`
pub(crate) fn list<'c>(names: impl IntoIterator<Item = &'c str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
