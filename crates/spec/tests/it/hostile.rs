//! Text that a model or an attacker might write: it may be refused, but nothing may panic or take long.

use lemon_num::Random;
use lemon_spec::generate;
use lemon_spec::{Code, Language, Limits, explain, render, validate};

/// Random and mutated texts that are tried.
const TEXTS: u64 = 1_000_000;

/// What mutations put in: everything YAML gives a meaning to, and what usually upsets readers of text.
const TOKENS: [&str; 62] = [
    "*a",
    "&a ",
    "!!",
    "!!str ",
    "!x!y ",
    "{",
    "}",
    "[",
    "]",
    "|",
    "|2-\n",
    ">",
    ">+\n",
    "? ",
    ": ",
    ":",
    ",",
    "- ",
    "-",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "%TAG ! x\n",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "                                        ",
    "\"",
    "'",
    "\\",
    "\\u00",
    "\\x",
    "\0",
    "\u{feff}",
    "\u{2028}",
    "\u{85}",
    "é",
    "🍋",
    "#",
    " #",
    "~",
    "null",
    "@",
    "`",
    "<<: ",
    "agents:\n",
    "  - id: a\n",
    "    base: solver\n",
    "    duty: >-\n      x\n",
    "    capacity: small\n",
    "    after: [a]\n",
    "answer: {from: [a]}\n",
    "next: stop\n",
    "id",
    "after",
    "solve",
    "[[[[[[[[[",
    "{a: {a: {a: {a: {a: {a: {a: {a: {a: ",
    "- - - - - - - - - - -",
    "\u{1b}[2J",
];

#[test]
fn a_million_random_and_mutated_texts_do_not_panic() {
    let language = Language { limits: Limits { duty_chars: 40, ..Limits::default() }, ..Language::default() };
    // Halves of the seeds, at the same time: no other test of this program takes as long.
    let halves = [0..TEXTS / 2, TEXTS / 2..TEXTS];
    let halves = std::thread::scope(|scope| {
        let language = &language;
        let begun = halves.map(|seeds| scope.spawn(move || try_texts(seeds, language)));
        begun.map(|half| half.join().expect("no panic"))
    });
    let (accepted, refused) = (halves[0].0 + halves[1].0, halves[0].1 + halves[1].1);
    // Both sides of the border were met often.
    assert!(accepted > TEXTS / 50 && refused > TEXTS / 2, "{accepted} accepted, {refused} refused");
}

/// Tries the texts of these seeds. How many were accepted, and how many refused.
fn try_texts(seeds: std::ops::Range<u64>, language: &Language) -> (u64, u64) {
    let (mut accepted, mut refused) = (0_u64, 0_u64);
    let mut seed_text = small_text(seeds.start - seeds.start % 64, language).into_bytes();
    for seed in seeds {
        let mut random = Random::new(seed);
        if seed % 64 == 0 {
            seed_text = small_text(seed, language).into_bytes();
        }
        let mut text = if random.one_in(8) { random_bytes(&mut random) } else { seed_text.clone() };
        for _ in 0..random.between(1, 4) {
            mutate(&mut text, &mut random);
        }
        let text = String::from_utf8_lossy(&text);
        match validate(&text, language) {
            Ok(plan) => {
                accepted += 1;
                if accepted % 16 == 0 {
                    let rendered = render(plan.spec());
                    let again = validate(&rendered.text, language).expect("a rendered specification is valid");
                    assert_eq!(again.spec(), plan.spec(), "{text}");
                    for (agent, spans) in plan.spec().agents.iter().zip(&plan.spans().agents) {
                        let written = spans.id.of(&text);
                        let same = written.trim_matches(['"', '\'']) == agent.id;
                        assert!(same || written.contains(['\\', '|', '>']), "{written:?} for {}\n{text}", agent.id);
                    }
                }
            }
            Err(rejection) => {
                refused += 1;
                assert!(rejection.errors().next().is_some(), "{text}");
                if refused % 64 == 0 {
                    assert!(!explain(&rejection.diagnostics, &text, "team.yaml", true).is_empty());
                }
            }
        }
    }
    (accepted, refused)
}

/// A team of up to three agents, in YAML or JSON.
fn small_text(seed: u64, language: &Language) -> String {
    let mut random = Random::new(seed);
    let small = Language { limits: Limits { agents: 3, ..language.limits.clone() }, ..language.clone() };
    let spec = generate::spec(seed, &small);
    if random.one_in(4) { serde_json::to_string(&spec).unwrap() } else { render(&spec).text }
}

fn random_bytes(random: &mut Random) -> Vec<u8> {
    let count = random.between(0, 24);
    (0..count).flat_map(|_| random.pick(&TOKENS).unwrap().bytes()).collect()
}

fn mutate(text: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(text.len() + 1);
    let until = (at + random.below(24)).min(text.len());
    match random.below(6) {
        0 if at < text.len() => text[at] ^= 1 << random.below(8),
        1 => drop(text.drain(at..until)),
        2 => {
            let line: Vec<u8> =
                text.split_inclusive(|byte| *byte == b'\n').nth(random.below(12)).unwrap_or(b"").to_vec();
            text.splice(at..at, line);
        }
        3 => {
            let piece = text[at..until].to_vec();
            text.splice(until..until, piece);
        }
        4 if at < text.len() => text[at] = random.below(256) as u8,
        _ => drop(text.splice(at..at, random.pick(&TOKENS).unwrap().bytes())),
    }
}

/// Texts as long as allowed that are built to make a reader recurse, backtrack or buffer. Each kind is tried with a
/// quarter and the whole of the length; there is no clock here, but quadratic work would not end in reasonable time.
#[test]
fn hostile_texts_of_full_length_are_refused_or_read() {
    let language = Language::default();
    let bytes = language.limits.bytes;
    let repeat = |piece: &str| piece.repeat(bytes / piece.len());
    let mut texts: Vec<String> = TOKENS.iter().map(|token| repeat(token)).collect();
    texts.extend([
        repeat("[a, "),
        repeat("a: "),
        repeat("a:\n"),
        repeat("- a\n"),
        repeat("\"a\": "),
        repeat("{a: b}, "),
        repeat("? a\n"),
        repeat("[]: "),
        repeat("&a *a "),
        (0..700).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect(),
        (0..700).map(|depth| format!("{}-\n", " ".repeat(depth))).collect(),
        format!("agents: [{}", repeat("a, ")),
        format!("agents: {{{}", repeat("a: b, ")),
        format!("agents: \"{}", repeat(" \n")),
        format!("agents: |\n{}", repeat(" \n")),
        format!("agents: >\n{}", repeat("  x\n\n")),
        format!("agents: {}x", " ".repeat(bytes - 20)),
        format!("{}agents: []", " ".repeat(bytes - 20)),
        format!("agents: [{}]", "\t".repeat(bytes - 20)),
        format!("agents: {}", repeat("x #")),
        format!("agents: [{{id: a, after: [{}]}}]", repeat("a,")),
    ]);
    for text in texts {
        let text = &text[..text.floor_char_boundary(bytes)];
        let rejection = validate(text, &language).expect_err("no team");
        assert!(rejection.diagnostics.len() < 6_000);
        let explained = explain(&rejection.diagnostics, text, "team.yaml", false);
        let longest = explained.lines().max_by_key(|line| line.chars().count()).unwrap_or_default();
        assert!(longest.chars().count() < 240, "{longest}");
    }
}

#[test]
fn a_text_beyond_the_limit_is_not_looked_at() {
    let language = Language::default();
    let text = "[".repeat(language.limits.bytes + 1);
    let rejection = validate(&text, &language).unwrap_err();
    assert_eq!(rejection.diagnostics.iter().map(|fault| fault.code).collect::<Vec<_>>(), [Code::TextTooLong]);
}
