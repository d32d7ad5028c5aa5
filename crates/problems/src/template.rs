//! Text with holes: `{P} [bought|took] {a} {t}.`

use crate::wording;
use lemon_num::Random;

/// Makes a text of a template: one alternative of each `[…|…]`, and for each `{key}` what `fill` says,
/// which also gets the text before it.
///
/// What is filled in starts with a capital where a sentence starts, and an article before it fits it (`an apple`).
pub(crate) fn render(template: &str, random: &mut Random, mut fill: impl FnMut(&str, &str) -> String) -> String {
    let chosen = choose(template, random);
    let mut text = String::with_capacity(chosen.len() + 32);
    let mut rest = chosen.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        let (key, after) = after.split_once('}').unwrap_or((after, ""));
        let value = fill(key, &text);
        append(&mut text, &value);
        rest = after;
    }
    text + rest
}

/// The keys of a template in order, in every alternative. The error says what is malformed.
pub(crate) fn keys(template: &str) -> Result<Vec<&str>, &'static str> {
    let mut inside = false;
    let mut alternatives = 0;
    for c in template.chars() {
        match c {
            '[' if inside => return Err("a `[` stands inside another"),
            '[' => (inside, alternatives) = (true, 1),
            ']' if !inside => return Err("a `]` closes nothing"),
            ']' if alternatives < 2 => return Err("a `[…]` offers no alternative"),
            ']' => inside = false,
            '|' if !inside => return Err("a `|` stands outside of `[…]`"),
            '|' => alternatives += 1,
            _ => {}
        }
    }
    if inside {
        return Err("a `[` is not closed");
    }
    let mut keys = Vec::new();
    for (index, part) in template.split('{').enumerate() {
        match (index, part.split_once('}')) {
            (0, None) => {}
            (0, Some(_)) => return Err("a `}` closes nothing"),
            (_, None) => return Err("a `{` is not closed"),
            (_, Some((_, after))) if after.contains('}') => return Err("a `}` closes nothing"),
            (_, Some((key, _))) if key.contains(['[', ']', '|']) => return Err("an alternative inside of `{…}`"),
            (_, Some((key, _))) => keys.push(key),
        }
    }
    Ok(keys)
}

fn choose(template: &str, random: &mut Random) -> String {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, after) = after.split_once(']').unwrap_or((after, ""));
        let alternatives: Vec<&str> = inside.split('|').collect();
        let chosen = random.pick(&alternatives).copied().unwrap_or_default();
        text.push_str(before);
        // An empty alternative leaves no second space, and none before a stop.
        let closing = after.starts_with([' ', '.', ',', '?', '!']);
        if chosen.is_empty() && closing && text.ends_with(' ') {
            text.pop();
        }
        text.push_str(chosen);
        rest = after;
    }
    text + rest
}

fn append(text: &mut String, value: &str) {
    let article = text.ends_with(" a ") || text.ends_with(" A ") || text == "A " || text == "a ";
    if article && wording::sounds_like_vowel(value) {
        text.pop();
        text.push_str("n ");
    }
    let sentence_starts = text.is_empty() || [". ", "? ", "! "].iter().any(|end| text.ends_with(end));
    if sentence_starts { text.push_str(&wording::capitalised(value)) } else { text.push_str(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(template: &str, value: &str, expected: &str) {
        assert_eq!(render(template, &mut crate::seeded(3), |_, _| value.to_owned()), expected, "{template}");
    }

    #[test]
    fn holes_are_filled() {
        check("I see {t}.", "mice", "I see mice.");
        check("{t} ran. {t} hid.", "mice", "Mice ran. Mice hid.");
        check("Take a {t}, a {t} or one {t}.", "apple", "Take an apple, an apple or one apple.");
        check("A {t} fell.", "egg", "An egg fell.");
        check("A {t} fell.", "8-page book", "An 8-page book fell.");
        check("A {t} fell.", "80", "An 80 fell.");
        check("A {t} fell.", "uniform", "A uniform fell.");
        check("How much [|] is it?", "", "How much is it?");
        check("How much is it [|]?", "", "How much is it?");
    }

    #[test]
    fn every_alternative_is_drawn() {
        let mut random = crate::seeded(1);
        let mut seen: Vec<String> =
            (0..50).map(|_| render("[a|b {x}|]!", &mut random, |key, _| key.to_owned())).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen, ["!", "a!", "b x!"]);
    }

    fn check_keys(template: &str, expected: Result<&[&str], &str>) {
        assert_eq!(keys(template), expected.map(<[_]>::to_vec), "{template}");
    }

    #[test]
    fn malformed_templates_are_refused() {
        check_keys("{P} has [{a}|{b} red] {t.one}", Ok(&["P", "a", "b", "t.one"]));
        check_keys("plain", Ok(&[]));
        check_keys("{a", Err("a `{` is not closed"));
        check_keys("a}", Err("a `}` closes nothing"));
        check_keys("{a}}", Err("a `}` closes nothing"));
        check_keys("[a|b", Err("a `[` is not closed"));
        check_keys("a|b", Err("a `|` stands outside of `[…]`"));
        check_keys("[a]", Err("a `[…]` offers no alternative"));
        check_keys("[a|[b|c]]", Err("a `[` stands inside another"));
        check_keys("a]", Err("a `]` closes nothing"));
        check_keys("{a[b|c]}", Err("an alternative inside of `{…}`"));
    }
}
