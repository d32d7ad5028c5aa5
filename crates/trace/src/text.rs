//! How numbers and long texts are written for people: the same on the terminal, in pictures and on the page.

use crate::{AgentSummary, Header, Metrics};
use lemon_spec::AnswerRule;
use std::borrow::Cow;

/// `1234567` as `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A text on one line, harmless for a terminal: every run of white space becomes a space.
pub fn one_line(text: &str) -> String {
    visible(&text.split_whitespace().collect::<Vec<_>>().join(" ")).into_owned()
}

/// A number of things: `1 agent`, `2 agents`.
pub fn plural(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}

/// A share in points of a hundred, with its sign; what rounds to nothing has none.
pub fn points(share: f64) -> String {
    let tenths = (share * 1000.0).round() / 10.0;
    match tenths {
        0.0 => "0.0".to_owned(),
        _ if tenths < 0.0 => format!("−{:.1}", -tenths),
        _ => format!("+{tenths:.1}"),
    }
}

/// A number of tokens where there is little room: `812`, `1.3k`, `2.0M`.
pub fn short_count(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.1}k", n as f64 / 1e3),
        _ => format!("{:.1}M", n as f64 / 1e6),
    }
}

/// A duration: `85 ms`, `2.4 s`, `3 min 20 s`.
pub fn seconds(s: f64) -> String {
    match s {
        s if s <= 0.0 => "0 s".to_owned(),
        s if s < 0.0995 => format!("{:.0} ms", s * 1e3),
        s if s < 99.95 => format!("{s:.1} s"),
        s => format!("{} min {:02} s", (s.round() / 60.0).floor(), s.round() % 60.0),
    }
}

/// An amount of money; small ones keep two significant digits. Nothing is `–`: a trace does not tell what is free from what
/// has no price.
pub fn usd(amount: f64) -> String {
    match amount {
        0.0 => "–".to_owned(),
        x if x.abs() < 0.1 => format!("${}", significant(x, 2)),
        x => format!("${x:.2}"),
    }
}

fn significant(x: f64, digits: i32) -> String {
    let places = (digits - 1 - x.abs().log10().floor() as i32).clamp(0, 9) as usize;
    format!("{x:.places$}")
}

/// The minute of a Unix time in UTC: `2026-03-09 14:05 UTC`.
pub fn date(ms: u64) -> String {
    // Years from March on, in eras of 400 years, so that leap days come last.
    let days = ms / 86_400_000 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let minutes = ms / 60_000 % 1_440;
    format!("{:04}-{month:02}-{day:02} {:02}:{:02} UTC", era * 400 + year + carry, minutes / 60, minutes % 60)
}

/// What was run, in one line. A task without a name of its own goes by the run's.
pub fn heading(header: &Header) -> String {
    let task = Some(&header.task_id).filter(|task| **task != header.run_id);
    let task = task.map(|task| format!(" · {}", line(task, 80))).unwrap_or_default();
    format!("{}{task} · {} workers · seed {}", header.run_id, header.workers, header.seed)
}

/// At most `chars` characters; what was longer ends in `…`.
pub fn clip(text: &str, chars: usize) -> String {
    if text.chars().nth(chars).is_none() {
        return text.to_owned();
    }
    let mut clipped: String = text.chars().take(chars.saturating_sub(1)).collect();
    clipped.truncate(clipped.trim_end().len());
    clipped.push('…');
    clipped
}

/// The first line that says something, on one line and clipped. Control characters do not reach the reader.
pub fn line(text: &str, chars: usize) -> String {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("");
    clip(&visible(&first.replace(char::is_control, " ")), chars)
}

/// A text in which nothing can move the cursor, colour a terminal, reverse the writing or hide. Each character that could is
/// written as JSON writes it, `\u001b`: what was JSON before is the same JSON after. Line ends and tabs stay.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(may_harm) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        let is_line_end = character == '\r' && rest.peek() == Some(&'\n');
        // Between letters that are not ASCII, joiners belong to the word or to the picture.
        let joins = matches!(character, '\u{200c}' | '\u{200d}') && !before.is_ascii();
        match may_harm(character) && !joins {
            true if is_line_end => {}
            true => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    shown.push_str(&format!("\\u{unit:04x}"));
                }
            }
            false => shown.push(character),
        }
        before = character;
    }
    Cow::Owned(shown)
}

/// Control characters, and characters that are not seen but change how others are shown.
fn may_harm(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => true,
        '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => true,
        character => character.is_control(),
    }
}

/// The word for how an agent stands.
pub fn status(agent: &AgentSummary) -> &'static str {
    match agent.status {
        Some(status) => status.as_str(),
        None if agent.started.is_some() => "running",
        None => "waiting",
    }
}

/// The word for a rule, as in a specification.
pub fn rule(rule: AnswerRule) -> &'static str {
    match rule {
        AnswerRule::Last => "last",
        AnswerRule::Vote => "vote",
        AnswerRule::Judge => "judge",
        AnswerRule::Test => "test",
    }
}

/// A reward: three digits after the point at most.
pub fn reward(value: f64) -> String {
    let shown = format!("{value:.3}");
    let short = shown.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}

/// The measured metrics: what each is called and its value, as people read them.
pub fn metrics(metrics: &Metrics) -> Vec<(&'static str, String)> {
    let times = |x: f64| format!("{x:.2}×");
    let percent = |x: f64| format!("{:.0} %", x * 100.0);
    let measured = [
        ("parallel speed-up", metrics.parallel_speedup.map(times)),
        ("busy time", metrics.busy_time.map(percent)),
        ("useful agents", metrics.useful_agents.map(percent)),
        ("message redundancy", metrics.message_redundancy.map(percent)),
        ("protocol overhead", metrics.protocol_overhead.map(percent)),
        ("error amplification", metrics.error_amplification.map(times)),
        ("events", Some(count(metrics.events))),
    ];
    measured.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        let check =
            |n, long: &str, short: &str| assert_eq!((count(n).as_str(), short_count(n).as_str()), (long, short));
        check(0, "0", "0");
        check(999, "999", "999");
        check(1_000, "1,000", "1.0k");
        check(1_234_567, "1,234,567", "1.2M");
    }

    #[test]
    fn shares_in_points() {
        let check = |share, expected: &str| assert_eq!(points(share), expected);
        check(0.085, "+8.5");
        check(-0.0025, "−0.3");
        check(-0.0004, "0.0");
    }

    #[test]
    fn durations_and_money() {
        let check = |s, expected: &str| assert_eq!(seconds(s), expected);
        check(-1.0, "0 s");
        check(0.0853, "85 ms");
        check(0.0999, "0.1 s");
        check(99.96, "1 min 40 s");
        check(200.0, "3 min 20 s");
        check(119.7, "2 min 00 s");
        let check = |x, expected: &str| assert_eq!(usd(x), expected);
        check(0.0, "–");
        check(0.000_012_3, "$0.000012");
        check(0.0456, "$0.046");
        check(12.345, "$12.35");
    }

    #[test]
    fn dates() {
        let check = |ms, expected: &str| assert_eq!(date(ms), expected);
        check(0, "1970-01-01 00:00 UTC");
        check(951_868_799_999, "2000-02-29 23:59 UTC");
        check(1_767_225_660_000, "2026-01-01 00:01 UTC");
        assert!(!date(u64::MAX).is_empty());
    }

    #[test]
    fn rewards() {
        let check = |value, expected: &str| assert_eq!(reward(value), expected);
        check(1.0, "1");
        check(-0.0001, "0");
        check(0.41799, "0.418");
        check(-2.5, "-2.5");
        check(100.0, "100");
    }

    #[test]
    fn texts_are_clipped_by_characters() {
        let check = |text, chars, expected: &str| assert_eq!(clip(text, chars), expected);
        check("äöü", 3, "äöü");
        check("äöüß", 3, "äö…");
        check("a bcd", 3, "a…");
        check("", 0, "");
        check("abc", 0, "…");
        assert_eq!(line("\n\n  first\u{1b}[31m \nsecond", 20), "first [31m");
        assert_eq!(line("pay\u{202e}lap", 20), "pay\\u202elap");
    }

    #[test]
    fn what_could_harm_a_terminal_is_shown() {
        let check = |text: &str, expected: &str| assert_eq!(visible(text), expected);
        check("two\nlines\tand a tab", "two\nlines\tand a tab");
        check("\u{1b}]0;title\u{7}", "\\u001b]0;title\\u0007");
        check("a\rb\r\nc\u{8}\u{7f}", "a\\u000db\nc\\u0008\\u007f");
        check("\u{9b}31m", "\\u009b31m");
        check("\u{202e}\u{2066}\u{2069}\u{2028}\u{200b}\u{feff}", "\\u202e\\u2066\\u2069\\u2028\\u200b\\ufeff");
        check("\u{e0041}", "\\udb40\\udc41");
        // Joiners belong to many scripts and pictures; in ASCII they only hide.
        check("می\u{200c}خواهم 👩\u{200d}🔬", "می\u{200c}خواهم 👩\u{200d}🔬");
        check("pay\u{200d}pal", "pay\\u200dpal");
        check("naïve “quotes” 東京 🍋", "naïve “quotes” 東京 🍋");
    }

    #[test]
    fn json_stays_the_same_json() {
        let value = serde_json::json!({"reply": "\u{1b}[31m \u{9b}2J \u{202e} \u{e0041} \\ \u{200b}\u{7f}"});
        let shown = visible(&value.to_string()).into_owned();
        assert!(!shown.chars().any(may_harm), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
