//! Random valid specifications from a seed, for property tests and benchmarks of this and other crates.

use crate::{Agent, Answer, AnswerRule, Language, Next, Share, Spec};
use lemon_num::Random;

/// A valid specification of a first round. The same seed gives the same one; `language` needs a role and a capacity.
pub fn spec(seed: u64, language: &Language) -> Spec {
    spec_after(seed, language, &[])
}

/// A valid specification of a round that follows those with the agents `earlier`.
pub fn spec_after(seed: u64, language: &Language, earlier: &[String]) -> Spec {
    let mut random = Random::new(seed);
    let limits = &language.limits;
    // Most teams are small; a few are as large as allowed.
    let most = if random.one_in(16) { limits.agents } else { limits.agents.min(6) };
    let fewest = usize::from(earlier.is_empty());
    let count = random.between(fewest, most.max(1));

    let mut agents: Vec<Agent> = Vec::with_capacity(count);
    let mut depths: Vec<usize> = Vec::with_capacity(count);
    for _ in 0..count {
        let (after, depth) = parents(&mut random, &agents, &depths, earlier, language);
        depths.push(depth);
        let id = fresh_id(&mut random, &agents, earlier, limits.id_chars);
        agents.push(Agent {
            id,
            base: pick_base(&mut random, language),
            role: random.one_in(2).then(|| prose(&mut random, limits.role_chars)),
            duty: random.one_in(2).then(|| prose(&mut random, limits.duty_chars)),
            capacity: random.pick(&language.capacities).cloned().unwrap_or_default(),
            after,
            share: *random.pick(Share::ALL).unwrap_or(&Share::Reply),
            tools: tools(&mut random, language),
        });
    }
    let from = answer_from(&mut random, &agents, earlier, limits.parents);
    let by = *random.pick(language.answer_rules()).unwrap_or(&AnswerRule::Last);
    let next = *random.pick(Next::ALL).unwrap_or(&Next::Stop);
    Spec { agents, answer: Answer { from, by }, next }
}

fn pick_base(random: &mut Random, language: &Language) -> String {
    let names: Vec<&String> = language.roles.iter().map(|role| &role.name).collect();
    random.pick(&names).map(|name| (*name).clone()).unwrap_or_default()
}

/// Some tools in any order, each once. Nothing is drawn where there are none.
fn tools(random: &mut Random, language: &Language) -> Vec<String> {
    let most = language.tools.len().min(language.limits.tools);
    let count = if most == 0 || random.one_in(2) { 0 } else { random.between(1, most) };
    let mut known: Vec<&String> = language.tools.iter().collect();
    (0..count).map(|_| known.swap_remove(random.below(known.len())).clone()).collect()
}

/// References to earlier agents in any order, and the depth they lead to.
fn parents(
    random: &mut Random,
    agents: &[Agent],
    depths: &[usize],
    earlier: &[String],
    language: &Language,
) -> (Vec<String>, usize) {
    let limits = &language.limits;
    let own = agents.iter().zip(depths).filter(|(_, depth)| **depth < limits.depth);
    let mut readable: Vec<(&String, usize)> = own.map(|(agent, depth)| (&agent.id, *depth)).collect();
    readable.extend(earlier.iter().map(|id| (id, 0)));
    let most = if random.one_in(16) { limits.parents } else { limits.parents.min(3) };
    let count = random.between(0, most.min(readable.len()));
    let mut after = Vec::with_capacity(count);
    let mut depth = 1;
    for _ in 0..count {
        let (id, its_depth) = readable.swap_remove(random.below(readable.len()));
        after.push(id.clone());
        depth = depth.max(its_depth + 1);
    }
    (after, depth)
}

fn answer_from(random: &mut Random, agents: &[Agent], earlier: &[String], most: usize) -> Vec<String> {
    let mut candidates: Vec<&String> = agents.iter().map(|agent| &agent.id).chain(earlier).collect();
    let count = random.between(1, most.min(candidates.len()).min(4));
    (0..count).map(|_| candidates.swap_remove(random.below(candidates.len())).clone()).collect()
}

fn fresh_id(random: &mut Random, agents: &[Agent], earlier: &[String], most_chars: usize) -> String {
    // Words that YAML gives a meaning to are ids like any other.
    const STEMS: [&str; 10] = ["a", "solve", "check", "plan-b", "Code_1", "null", "true", "n", "no", "x"];
    let known = |id: &str| agents.iter().any(|agent| agent.id == id) || earlier.iter().any(|known| known == id);
    let stem = *random.pick(&STEMS).unwrap_or(&"a");
    let mut id = stem.chars().take(most_chars).collect::<String>();
    while known(&id) {
        let digits = random.below(100_000).to_string();
        let kept = most_chars.saturating_sub(digits.len()).max(1);
        id = stem.chars().take(kept).chain(digits.chars()).collect();
    }
    id
}

/// Text of the kind that breaks writers of YAML.
fn prose(random: &mut Random, most_chars: usize) -> String {
    const PIECES: [&str; 44] = [
        "Solve",
        "the task",
        "step by step",
        " ",
        "  ",
        ": ",
        ":",
        " #",
        "#",
        "- ",
        "-",
        "\"",
        "'",
        "\\",
        "\n",
        "\n\n",
        "\t",
        "~",
        "null",
        "true",
        "[",
        "]",
        "{",
        "}",
        ",",
        "&a",
        "*a",
        "!t",
        "|",
        ">",
        "%",
        "@",
        "`",
        "? ",
        "é",
        "汉字",
        "🍋",
        "\u{2028}",
        "\u{feff}",
        "\u{a0}",
        "\u{202e}",
        "---",
        "...",
        "0x1F",
    ];
    let count = random.between(0, 12);
    let text: String = (0..count).filter_map(|_| random.pick(&PIECES).copied()).collect();
    text.chars().take(most_chars).collect()
}
