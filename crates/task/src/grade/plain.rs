//! Replies come as Markdown and LaTeX with typographic characters; graders read the same text in plain ASCII forms.

/// Rewrites a text: typographic signs as ASCII, LaTeX fractions as `a/b`, commands and emphasis dropped. `\boxed`,
/// braces and line breaks stay, because they mark places.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut in_power = false;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '\\' => command(after, &mut out),
            '*' if after.starts_with('*') => emphasis(after.trim_start_matches('*'), &mut out),
            '*' if after.starts_with(char::is_alphanumeric) && !out.ends_with(|c: char| c.is_alphanumeric()) => after,
            '`' => after,
            '{' if after.starts_with(",}") => {
                out.push(',');
                &after[2..]
            }
            _ => {
                push(c, in_power, &mut out);
                after
            }
        };
        in_power = superscript(c).is_some();
    }
    out
}

/// The text without outer punctuation and runs of spaces, for comparing answers as texts.
pub(crate) fn bare(text: &str) -> String {
    let text = plain(text);
    let words = text.split(|c: char| c.is_whitespace() || "${}".contains(c)).filter(|word| !word.is_empty());
    let joined = words.collect::<Vec<_>>().join(" ");
    joined.trim_matches(|c: char| ".,;:!?\"'*_ “”‘’".contains(c)).to_owned()
}

/// Pushes a character in its ASCII form; `in_power` says that it follows a superscript.
fn push(c: char, in_power: bool, out: &mut String) {
    match c {
        '\u{2212}' | '\u{2010}' | '\u{2011}' | '\u{2013}' | '\u{fe63}' | '\u{ff0d}' => out.push('-'),
        '\u{a0}' | '\u{202f}' | '\u{2007}' | '\u{2009}' => out.push(' '),
        '×' | '✕' | '⋅' | '·' => out.push('*'),
        '≈' | '＝' => out.push('='),
        '％' => out.push('%'),
        '：' => out.push(':'),
        '⁄' | '∕' => out.push('/'),
        '\u{ff10}'..='\u{ff19}' => out.extend(char::from_digit(c as u32 - 0xff10, 10)),
        _ => match (fraction(c), superscript(c)) {
            (Some(text), _) => push_fraction(text, out),
            (_, Some(digit)) => {
                if !in_power {
                    out.push('^');
                }
                out.push(digit);
            }
            _ => out.push(c),
        },
    }
}

fn fraction(c: char) -> Option<&'static str> {
    let fractions = [('½', "1/2"), ('⅓', "1/3"), ('⅔', "2/3"), ('¼', "1/4"), ('¾', "3/4"), ('⅕', "1/5"), ('⅛', "1/8")];
    fractions.iter().find(|(sign, _)| *sign == c).map(|(_, text)| *text)
}

fn superscript(c: char) -> Option<char> {
    let digits = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    if c == '⁻' {
        return Some('-');
    }
    let digit = digits.iter().position(|digit| *digit == c)?;
    char::from_digit(digit as u32, 10)
}

/// A fraction right behind a number is the rest of a mixed number.
fn push_fraction(text: &str, out: &mut String) {
    if out.ends_with(|c: char| c.is_ascii_digit()) {
        out.push(' ');
    }
    out.push_str(text);
}

/// Drops `**`, but keeps the numbers on both sides apart.
fn emphasis<'a>(after: &'a str, out: &mut String) -> &'a str {
    if out.ends_with(|c: char| c.is_alphanumeric()) && after.starts_with(char::is_alphanumeric) {
        out.push(' ');
    }
    after
}

/// Rewrites the LaTeX command behind a backslash and returns what follows it.
fn command<'a>(after: &'a str, out: &mut String) -> &'a str {
    let name_end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
    let (name, rest) = after.split_at(name_end);
    match name {
        "frac" | "dfrac" | "tfrac" | "cfrac" => {
            if let Some((above, below, rest)) = two_groups(rest) {
                push_fraction(&format!("{}/{}", plain(above), plain(below)), out);
                return rest;
            }
        }
        "boxed" | "fbox" => out.push_str("\\boxed"),
        "times" | "cdot" => out.push('*'),
        "approx" => out.push('='),
        "" => return symbol(rest, out),
        _ => out.push(' '),
    }
    rest
}

/// Rewrites an escaped symbol: `\$`, `\%`, or a space such as `\,`, which may part the thousands of a number.
fn symbol<'a>(rest: &'a str, out: &mut String) -> &'a str {
    let Some(c) = rest.chars().next() else { return rest };
    let after = &rest[c.len_utf8()..];
    let between_digits = out.ends_with(|c: char| c.is_ascii_digit()) && after.starts_with(|c: char| c.is_ascii_digit());
    match c {
        '$' | '%' | '{' | '}' | '#' | '_' | '&' => out.push(c),
        ',' | '!' | ';' | ':' | ' ' if between_digits => {}
        '\n' => out.push('\n'),
        _ => out.push(' '),
    }
    after
}

/// The two arguments of a fraction, in braces or as single characters, and what follows them.
fn two_groups(text: &str) -> Option<(&str, &str, &str)> {
    let (above, rest) = group(text)?;
    let (below, rest) = group(rest)?;
    Some((above, below, rest))
}

fn group(text: &str) -> Option<(&str, &str)> {
    match text.strip_prefix('{') {
        Some(inside) => {
            // Fractions inside fractions are not numbers we read: refusing them, and long ones, bounds the work.
            let end = closing_brace(&inside[..inside.floor_char_boundary(100)])?;
            let content = &inside[..end];
            (!content.contains("frac")).then_some((content, &inside[end + 1..]))
        }
        None => {
            let first = text.chars().next().filter(char::is_ascii_digit)?;
            Some(text.split_at(first.len_utf8()))
        }
    }
}

/// Where the brace closes that was opened right before the text.
pub(crate) fn closing_brace(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some(index),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(plain(text), expected, "{text:?}");
    }

    #[test]
    fn rewrites() {
        check("**Answer:** 18", "Answer: 18");
        check("is **18** eggs", "is 18 eggs");
        check("3**4**", "3 4");
        check("*so* it is 2 * 3", "so* it is 2 * 3");
        check("−7 and –8", "-7 and -8");
        check("1\u{202f}000 × 2", "1 000 * 2");
        check("1½ + ¾", "1 1/2 + 3/4");
        check("10⁶ and 10⁻¹² cm²", "10^6 and 10^-12 cm^2");
        check(r"\boxed{1{,}000\text{ kg}}", r"\boxed{1,000 { kg}}");
        check(r"1\frac{3}{4}, -\dfrac{1}{2}, \frac34", "1 3/4, -1/2, 3/4");
        check(r"\frac{\frac{1}{2}}{3", "{1/2}{3");
        check(r"10\,000 \$5 15\% 3 \times 4\", "10000 $5 15% 3 * 4");
        check(r"\(x\) \[y\]", " x   y ");
        check("`18`", "18");
        check("５００％", "500%");
    }

    #[test]
    fn bares() {
        assert_eq!(bare("  **The  Nile**. "), "The Nile");
        assert_eq!(bare("$65"), "65");
    }
}
