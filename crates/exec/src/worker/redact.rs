//! Secrets that must not get from outside into a trace, a cassette or a screen: keys, tokens, passwords in addresses.
//!
//! A secret is found as it is, percent-encoded, escaped as in JSON (or any mixture of these), and in base64 wherever it
//! begins in the encoded text.

use std::borrow::Cow;

/// What stands in place of a secret.
pub const MASK: &str = "***";
/// Secrets shorter than this are looked for in errors only: "none" or "ollama" as a key must not spoil replies.
const LEAST_IN_REPLIES: usize = 8;

/// Texts that must not be shown. It has no `Debug`, so that no log can show them.
#[derive(Clone, Default)]
pub struct Secrets {
    plain: Vec<String>,
    base64: Vec<String>,
}

/// What stands at a place of a text.
enum Found {
    /// A secret of this many bytes.
    Whole(usize),
    /// The beginning of one: the text ends before it does.
    Beginning,
    Nothing,
}

impl Secrets {
    /// Hides another one.
    pub fn add(&mut self, secret: &str) {
        let secret = secret.trim();
        if secret.is_empty() || self.plain.iter().any(|known| known == secret) {
            return;
        }
        if secret.len() >= LEAST_IN_REPLIES {
            self.base64.extend(base64_forms(secret.as_bytes()));
        }
        self.plain.push(secret.to_owned());
        // The longest first, so that a secret that begins another does not leave the rest of it.
        self.plain.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    }

    /// Hides the password and the user of an address, if it has them.
    pub fn add_url(&mut self, url: &str) {
        let Some((_, user_info)) = user_info(url) else { return };
        let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
        let secret = if password.is_empty() { user } else { password };
        self.add(&percent_decoded(secret));
        if !password.is_empty() && user_info.len() >= LEAST_IN_REPLIES {
            // As it travels in a header.
            self.base64.extend(base64_forms(percent_decoded(user_info).as_bytes()));
        }
    }

    /// A text of a reply without secrets.
    pub fn hide(&self, text: String) -> String {
        let long = |secret: &&String| secret.len() >= LEAST_IN_REPLIES;
        let (end, shown) = self.scan(&text, long, false);
        match shown {
            Cow::Borrowed(_) if end == text.len() => text,
            shown => shown.into_owned(),
        }
    }

    /// A message about an error without secrets, however short, and without users and passwords in addresses.
    pub fn hide_in_error(&self, text: &str) -> String {
        mask_url(&self.scan(text, |_| true, false).1)
    }

    /// What may be shown of a text that is still being written: how many of its bytes are decided, and these without
    /// secrets. What may turn out to begin a secret is not decided.
    pub fn hide_so_far<'t>(&self, text: &'t str) -> (usize, Cow<'t, str>) {
        self.scan(text, |secret| secret.len() >= LEAST_IN_REPLIES, true)
    }

    fn scan<'t>(&self, text: &'t str, which: impl Fn(&&String) -> bool, growing: bool) -> (usize, Cow<'t, str>) {
        let plain: Vec<&[u8]> = self.plain.iter().filter(|secret| which(secret)).map(|it| it.as_bytes()).collect();
        let mut shown = Cow::Borrowed("");
        let (mut at, mut kept) = (0, 0);
        while at < text.len() {
            match self.find(text.as_bytes(), at, &plain, growing) {
                Found::Beginning => break,
                Found::Whole(length) => {
                    let shown = shown.to_mut();
                    shown.push_str(text.get(kept..at).unwrap_or_default());
                    shown.push_str(MASK);
                    at += length;
                    kept = at;
                }
                Found::Nothing => at += 1,
            }
            // A secret begins and ends with whole characters, but a place in between may be within one.
            while !text.is_char_boundary(at) {
                at += 1;
            }
        }
        let rest = text.get(kept..at).unwrap_or_default();
        if kept == 0 {
            return (at, Cow::Borrowed(rest));
        }
        shown.to_mut().push_str(rest);
        (at, shown)
    }

    fn find(&self, text: &[u8], at: usize, plain: &[&[u8]], growing: bool) -> Found {
        let Some(rest) = text.get(at..) else { return Found::Nothing };
        let exact = |form: &String| match rest.starts_with(form.as_bytes()) {
            true => Found::Whole(form.len()),
            false if form.as_bytes().starts_with(rest) => Found::Beginning,
            false => Found::Nothing,
        };
        let found = plain.iter().map(|secret| escaped(rest, secret)).chain(self.base64.iter().map(exact));
        let mut best = Found::Nothing;
        for found in found {
            match (found, &best) {
                (Found::Beginning, _) if growing => return Found::Beginning,
                // The text was cut off inside a secret: most of a secret is as good as all of it.
                (Found::Beginning, Found::Nothing) if rest.len() >= LEAST_IN_REPLIES => best = Found::Whole(rest.len()),
                (Found::Whole(length), Found::Whole(longest)) if length <= *longest => {}
                (Found::Whole(length), _) => best = Found::Whole(length),
                _ => {}
            }
        }
        best
    }
}

/// Whether a text begins with a secret whose characters stand there as they are or escaped.
fn escaped(text: &[u8], secret: &[u8]) -> Found {
    let mut at = 0;
    for byte in secret {
        let rest = text.get(at..).unwrap_or_default();
        at += match rest {
            [] => return Found::Beginning,
            [first, ..] if first == byte => 1,
            [b'%', high, low, ..] if hex(&[*high, *low]) == Some(u32::from(*byte)) => 3,
            [b'\\', b'u', code @ ..] if code.len() >= 4 && hex(&code[..4]) == Some(u32::from(*byte)) => 6,
            [b'\\', escaped, ..] if escaped == byte => 2,
            // An escape that the text cuts off.
            [b'%'] | [b'%', _] | [b'\\'] => return Found::Beginning,
            [b'\\', b'u', code @ ..] if code.len() < 4 => return Found::Beginning,
            _ => return Found::Nothing,
        };
    }
    Found::Whole(at)
}

fn hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |sum, digit| Some(sum * 16 + char::from(*digit).to_digit(16)?))
}

/// What base64 makes of a secret, in both alphabets, wherever it begins: the characters that hang on nothing beside it.
fn base64_forms(secret: &[u8]) -> Vec<String> {
    let alphabets = ["+/", "-_"];
    let starts = 0..3;
    let forms = starts.flat_map(|start| {
        let padded: Vec<u8> = std::iter::repeat_n(0, start).chain(secret.iter().copied()).collect();
        let (first, last) = ((start * 8).div_ceil(6), padded.len() * 8 / 6);
        alphabets.map(|extra| base64(&padded, extra).get(first..last).unwrap_or_default().to_owned())
    });
    let mut forms: Vec<String> = forms.filter(|form| form.len() >= LEAST_IN_REPLIES).collect();
    forms.sort();
    forms.dedup();
    forms
}

/// Base64 without padding.
fn base64(bytes: &[u8], extra: &str) -> String {
    let alphabet: Vec<u8> = (b'A'..=b'Z').chain(b'a'..=b'z').chain(b'0'..=b'9').chain(extra.bytes()).collect();
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| usize::from(byte >> (7 - at % 8) & 1));
    let digit = |at: usize| (0..6).fold(0, |sum, place| sum * 2 + bit(at * 6 + place));
    let count = (bytes.len() * 8).div_ceil(6);
    (0..count).filter_map(|at| alphabet.get(digit(at)).map(|byte| char::from(*byte))).collect()
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escape = (*first == b'%').then(|| after.get(..2).and_then(hex)).flatten();
        bytes.push(escape.and_then(|code| u8::try_from(code).ok()).unwrap_or(*first));
        rest = if escape.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Where in a text that begins with an address its `user:password@` stands, and what it is without the `@`.
fn user_info(url: &str) -> Option<(usize, &str)> {
    let start = url.find("://")? + 3;
    let authority = url.get(start..)?.split(['/', '?', '#', ' ', '"', '\'', '\n', '\t']).next()?;
    Some((start, authority.get(..authority.rfind('@')?)?))
}

/// A text without the `user:password` of any address in it, fit to be shown and stored.
pub fn mask_url(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        match user_info(rest) {
            Some((start, user_info)) if start == at + 3 => {
                shown.push_str(before);
                shown.push_str(MASK);
                rest = after.get(user_info.len()..).unwrap_or_default();
            }
            _ => {
                shown.push_str(before);
                rest = after;
            }
        }
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECRET: &str = "sk-\"quoted\"/0123+456";

    fn secrets() -> Secrets {
        let mut secrets = Secrets::default();
        secrets.add(SECRET);
        secrets.add("tiny");
        secrets
    }

    #[track_caller]
    fn check_hidden(text: &str) {
        let shown = secrets().hide(format!("You sent {text}, thanks."));
        assert_eq!(shown, "You sent ***, thanks.");
    }

    #[test]
    fn a_secret_is_found_in_every_form() {
        check_hidden(SECRET);
        check_hidden(serde_json::to_string(SECRET).unwrap().trim_matches('"'));
        let bytes = || SECRET.bytes();
        check_hidden(&bytes().map(|byte| format!("%{byte:02X}")).collect::<String>());
        check_hidden(&bytes().map(|byte| format!("%{byte:02x}")).collect::<String>());
        check_hidden(&bytes().map(|byte| format!("\\u{byte:04x}")).collect::<String>());
        let mixed = |(at, byte): (usize, u8)| match at % 2 {
            0 => format!("\\u{byte:04X}"),
            _ => char::from(byte).to_string(),
        };
        check_hidden(&bytes().enumerate().map(mixed).collect::<String>());
    }

    #[test]
    fn base64_is_found_wherever_the_secret_begins() {
        for (extra, before) in ["+/", "-_"].into_iter().flat_map(|extra| ["", "a", "ab", "user:"].map(|b| (extra, b))) {
            let encoded = base64(format!("{before}{SECRET}zz").as_bytes(), extra);
            let shown = secrets().hide(encoded.clone());
            assert!(shown.contains(MASK) && shown.len() < 15, "{encoded}: {shown}");
        }
        assert_eq!(base64(b"Man", "+/"), "TWFu");
        assert_eq!(base64(b"Ma", "+/"), "TWE");
        assert_eq!(base64(&[0xfb, 0xff], "-_"), "-_8");
    }

    #[test]
    fn a_secret_that_the_end_of_the_text_cuts_off_is_hidden() {
        for cut in LEAST_IN_REPLIES..SECRET.len() {
            let text = format!("the key is {}", &SECRET[..cut]);
            assert_eq!(secrets().hide(text.clone()), "the key is ***");
            assert_eq!(secrets().hide_in_error(&text), "the key is ***");
        }
        assert_eq!(secrets().hide("a key begins with sk-".into()), "a key begins with sk-");
    }

    #[test]
    fn short_secrets_are_hidden_in_errors_only() {
        assert_eq!(secrets().hide("a tiny one".into()), "a tiny one");
        assert_eq!(secrets().hide_in_error("a tiny one"), "a *** one");
    }

    #[test]
    fn addresses_show_neither_user_nor_password() {
        assert_eq!(mask_url("http://me:pass%40word@host:1/v1"), "http://***@host:1/v1");
        assert_eq!(mask_url("https://token@host/v1"), "https://***@host/v1");
        assert_eq!(mask_url("http://host/v1?q=a@b"), "http://host/v1?q=a@b");
        assert_eq!(mask_url("no http://a:b@c, see https://d@e/f x@y"), "no http://***@c, see https://***@e/f x@y");
        let mut secrets = Secrets::default();
        secrets.add_url("http://me:pass%40word@host:1/v1");
        assert_eq!(secrets.hide("It is pass@word or pass%40word.".into()), "It is *** or ***.");
        assert!(secrets.hide(base64(b"me:pass@word", "+/")).contains(MASK));
    }

    proptest! {
        #[test]
        fn pieces_show_what_the_whole_does(before in "[a-zé%\\\\]{0,9}", after in "[a-zé%\\\\]{0,9}", cuts in prop::collection::vec(0usize..60, 0..8)) {
            let text = format!("{before}{SECRET}{after}{SECRET}");
            let secrets = secrets();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| text.floor_char_boundary(cut)).collect();
            cuts.sort_unstable();
            let (mut told, mut shown) = (0, String::new());
            for cut in cuts {
                if cut < told {
                    continue;
                }
                let (decided, piece) = secrets.hide_so_far(&text[told..cut]);
                shown.push_str(&piece);
                told += decided;
                prop_assert!(!shown.contains("sk-"));
            }
            shown.push_str(&secrets.hide(text[told..].to_owned()));
            prop_assert_eq!(shown, secrets.hide(text.clone()));
        }

        #[test]
        fn no_text_panics(text in ".{0,60}", secret in ".{0,20}") {
            let mut secrets = Secrets::default();
            secrets.add(&secret);
            let _ = secrets.hide(text.clone());
            let _ = secrets.hide_so_far(&text);
            let _ = secrets.hide_in_error(&text);
        }
    }
}
