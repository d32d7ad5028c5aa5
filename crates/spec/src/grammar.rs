//! The canonical texts of this language as a grammar: a model that writes under it writes teams and nothing else.

use crate::render::{TOOLS, WORDS_WITH_A_MEANING, item, render, scalar};
use crate::{Agent, Answer, AnswerRule, Language, Next, Share, Spec};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// What may be asked for under a [`grammar`]. The limits of the language bind besides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shape {
    /// Agents in one round.
    pub agents: usize,
    /// References in one agent's `after`. Only the language limits those of `answer.from`: a vote may be large.
    pub parents: usize,
    /// Characters of a role, spaces not counted.
    pub role_chars: usize,
    /// Characters of a duty, spaces not counted.
    pub duty_chars: usize,
    /// Whether a round may end with `next: review`.
    pub review: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Shape { agents: 6, parents: 4, role_chars: 60, duty_chars: 160, review: true }
    }
}

/// A grammar (Lark, in the dialect of llguidance) of canonical texts for a round that follows those with the agents
/// `earlier`. Each of its sentences is what [`render`] writes and passes [`crate::validate_round`].
///
/// Of the texts that are equal but for ids and the order of references and tools it has one. The agents of a round are called by the first of a1, a2,
/// a3, … that are free, in this order; a list names agents in the order they were written, earlier rounds first. What else
/// of the language it leaves out:
/// - Roles and duties are ASCII words with one space between them, without `:`, `#` and quotes. Where the language limits
///   their characters, one that is all spaces and single letters has to fit too.
/// - If there are more agents than a path may have (`limits.depth`), only those that cannot end a path too long are read.
///
/// If the language allows no text at all (it has no role, say), the grammar has no sentence.
pub fn grammar(language: &Language, earlier: &[String], shape: &Shape) -> String {
    Outline::new(language, earlier, shape).map_or_else(|| NOTHING.to_owned(), |outline| outline.write())
}

/// The characters of words in prose. Each is safe wherever it stands in an unquoted YAML text after a letter.
const WORD: &str = r"[A-Za-z0-9,.;?!'()%+=*\/_-]";

const NOTHING: &str = "start: NOTHING\nNOTHING: \"a\" & \"b\"\n";

/// Everything the grammar depends on.
struct Outline<'l> {
    language: &'l Language,
    /// The ids of earlier rounds, then those of this round: all that can be referred to.
    ids: Vec<String>,
    /// How many of them are of earlier rounds.
    earlier: usize,
    parents: usize,
    /// Characters of a role and of a duty, spaces not counted.
    role_chars: usize,
    duty_chars: usize,
    review: bool,
}

impl<'l> Outline<'l> {
    /// `None` if there is no text to be written.
    fn new(language: &'l Language, earlier: &[String], shape: &Shape) -> Option<Outline<'l>> {
        let limits = &language.limits;
        let mut outline = Outline {
            language,
            ids: earlier.iter().cloned().chain(fresh_ids(language, earlier, shape.agents)).collect(),
            earlier: earlier.len(),
            parents: shape.parents.min(limits.parents),
            role_chars: shape.role_chars.min(limits.role_chars.div_ceil(2)),
            duty_chars: shape.duty_chars.min(limits.duty_chars.div_ceil(2)),
            review: shape.review,
        };
        while outline.longest_text() > limits.bytes && outline.ids.len() > outline.earlier {
            outline.ids.pop();
        }
        let possible = limits.parents > 0 && !outline.ids.is_empty() && outline.longest_text() <= limits.bytes;
        possible.then_some(outline)
    }

    /// A bound on the bytes of a text: the length of one that says as much as it can everywhere.
    fn longest_text(&self) -> usize {
        let longest =
            |words: Vec<&str>| words.into_iter().max_by_key(|word| scalar(word).len()).unwrap_or("").to_owned();
        let mut ids = self.ids.clone();
        ids.sort_by_key(|id| std::cmp::Reverse(scalar(id).len()));
        let most_ids = |count: usize| ids.iter().take(count).cloned().collect::<Vec<_>>();
        let agent = |id: &String| Agent {
            id: id.clone(),
            base: longest(self.language.roles.iter().map(|role| role.name.as_str()).collect()),
            role: None,
            duty: None,
            capacity: longest(self.language.capacities.iter().map(String::as_str).collect()),
            after: most_ids(self.parents),
            share: Share::Answer,
            tools: self.longest_tools(),
        };
        let agents = self.own_ids().iter().map(agent).collect();
        let answer = Answer { from: most_ids(self.language.limits.parents), by: AnswerRule::Judge };
        let without_prose = render(&Spec { agents, answer, next: Next::Review }).text.len();
        let prose = self.role_chars.saturating_add(self.duty_chars).saturating_mul(2);
        without_prose.saturating_add(self.own_ids().len().saturating_mul(prose))
    }

    /// The tools whose list is the longest.
    fn longest_tools(&self) -> Vec<String> {
        let mut tools = self.language.tools.clone();
        tools.sort_by_key(|tool| std::cmp::Reverse(item(tool).len()));
        tools.truncate(self.language.limits.tools);
        tools
    }

    fn own_ids(&self) -> &[String] {
        self.ids.get(self.earlier..).unwrap_or_default()
    }

    fn write(&self) -> String {
        let mut rules = Rules(String::new());
        self.write_teams(&mut rules);
        self.write_fields(&mut rules);
        self.write_lists(&mut rules);
        rules.0
    }

    /// One rule per position, so that ids are unique and references point back. Rules and terminals that depend on who can
    /// be referred to carry the number of those agents in their names.
    fn write_teams(&self, rules: &mut Rules) {
        let some = (!self.own_ids().is_empty()).then(|| format!("{} team_{}", literal("agents:\n"), self.earlier + 1));
        let none = (self.earlier > 0).then(|| format!("{} answer_{}", literal("agents: []\n"), self.earlier));
        rules.add("start", &some.into_iter().chain(none).collect::<Vec<_>>().join(" | "));
        if self.earlier > 0 {
            self.write_answer(rules, self.earlier);
        }
        for (before, id) in self.ids.iter().enumerate().skip(self.earlier) {
            let known = before + 1;
            let entry = literal(&format!("  - id: {}\n", scalar(id)));
            let rest = if known < self.ids.len() { format!(" | team_{}", known + 1) } else { String::new() };
            let readable = self.readable(before);
            rules.add(&format!("team_{known}"), &format!("{entry} who READ_{readable} share (answer_{known}{rest})"));
            self.write_answer(rules, known);
        }
    }

    fn write_answer(&self, rules: &mut Rules, known: usize) {
        rules.add(&format!("answer_{known}"), &format!("{} FROM_{known} end", literal("answer: {from: ")));
    }

    /// How many agents the one after `before` others may read. One that stands `depth`th or later may end a path as long as
    /// is allowed, so no agent reads it.
    fn readable(&self, before: usize) -> usize {
        before.min(self.earlier + self.language.limits.depth.saturating_sub(1))
    }

    fn write_fields(&self, rules: &mut Rules) {
        if !self.own_ids().is_empty() {
            let keys = ["    base: ", "\n    role: ", "\n    duty: ", "\n    capacity: ", "\n    after: "].map(literal);
            let [base, role, duty, capacity, after] = keys;
            rules.add("who", &format!("{base} BASE {role} ROLE {duty} DUTY {capacity} CAPACITY {after}"));
            let tools = if self.longest_tools().is_empty() { "" } else { " tools?" };
            rules.add("share", &format!("{} SHARE {}{tools}", literal("\n    share: "), literal("\n")));
            self.write_tools(rules);
            rules.add("BASE", &one_of(self.language.roles.iter().map(|role| scalar(&role.name))));
            rules.add("ROLE", &prose(self.role_chars));
            rules.add("DUTY", &prose(self.duty_chars));
            rules.add("CAPACITY", &one_of(self.language.capacities.iter().map(|capacity| scalar(capacity))));
            rules.add("SHARE", &one_of(Share::ALL.iter().map(Share::to_string)));
            rules.add("MEANING", &format!("/{}/i", WORDS_WITH_A_MEANING.join("|")));
        }
        let next = Next::ALL.iter().filter(|next| self.review || **next != Next::Review);
        rules.add("end", &format!("{} BY {} NEXT {}", literal(", by: "), literal("}\nnext: "), literal("\n")));
        rules.add("BY", &one_of(self.language.answer_rules().iter().map(AnswerRule::to_string)));
        rules.add("NEXT", &one_of(next.map(Next::to_string)));
    }

    /// Some of the tools, in the order of the language. As `IDS_n`.
    fn write_tools(&self, rules: &mut Rules) {
        let (known, most) = (self.language.tools.len(), self.language.limits.tools);
        if known.min(most) == 0 {
            return;
        }
        rules.add("tools", &format!("{} TOOLS {}", literal(TOOLS), literal("\n")));
        // A comma in a name counts as one between names: that errs on the safe side.
        rules.add("TOOLS", &format!("\"[\" TOOLS_{known} \"]\"{}", at_most(most, known)));
        for (before, tool) in self.language.tools.iter().enumerate() {
            let (number, tool) = (before + 1, item(tool));
            let list = match before {
                0 => literal(&tool),
                _ => format!("TOOLS_{before} ({})? | {}", literal(&format!(", {tool}")), literal(&tool)),
            };
            rules.add(&format!("TOOLS_{number}"), &list);
        }
    }

    /// `IDS_n`: some of the first n agents, in order. Each is made of the one before, so that all lists together are as long
    /// as the longest.
    fn write_lists(&self, rules: &mut Rules) {
        for (before, id) in self.ids.iter().enumerate() {
            let (known, id) = (before + 1, scalar(id));
            let list = match before {
                0 => literal(&id),
                _ => format!("IDS_{before} ({})? | {}", literal(&format!(", {id}")), literal(&id)),
            };
            rules.add(&format!("IDS_{known}"), &list);
        }
        for known in self.earlier.max(1)..=self.ids.len() {
            let most = self.language.limits.parents;
            rules.add(&format!("FROM_{known}"), &format!("\"[\" IDS_{known} \"]\"{}", at_most(most, known)));
        }
        for readable in self.earlier..=self.readable(self.ids.len().saturating_sub(1)) {
            let list = match readable.min(self.parents) {
                0 => literal("[]"),
                _ => format!("\"[\" IDS_{readable}? \"]\"{}", at_most(self.parents, readable)),
            };
            rules.add(&format!("READ_{readable}"), &list);
        }
    }
}

struct Rules(String);

impl Rules {
    fn add(&mut self, name: &str, body: &str) {
        // Writing to a string does not fail.
        writeln!(self.0, "{name}: {body}").unwrap_or_default();
    }
}

/// The ids that agents of this round get. None of them is reserved.
fn fresh_ids(language: &Language, earlier: &[String], most: usize) -> impl Iterator<Item = String> {
    let limits = &language.limits;
    let possible = limits.depth > 0 && !language.capacities.is_empty() && language.roles.iter().next().is_some();
    // An agent's entry is longer than its seven keys.
    const LEAST_BYTES: usize = 64;
    let most = if possible { most.min(limits.agents).min(limits.bytes / LEAST_BYTES) } else { 0 };
    let free = |id: &String| !earlier.contains(id);
    (1_usize..).map(|number| format!("a{number}")).filter(free).take_while(|id| id.len() <= limits.id_chars).take(most)
}

/// `~`, or words of at most so many characters, with a space before any of them, that mean nothing to a YAML reader.
///
/// To count the spaces too, the words would have to be intersected with their length. llguidance knows how to look up masks
/// for a repeated class, but not for an intersection: a mask took eight times as long (410 instead of 50 µs for 40,000
/// tokens).
fn prose(most_chars: usize) -> String {
    match most_chars.checked_sub(1) {
        None => literal("~"),
        Some(more) => format!("{} | /[A-Za-z]( ?{WORD}){{0,{more}}}/ & ~MEANING", literal("~")),
    }
}

/// What a list of `known` ids has to match besides, so that it names at most so many. Ids have no commas.
fn at_most(most: usize, known: usize) -> String {
    if known <= most { String::new() } else { format!(" & /[^,]*(,[^,]*){{0,{}}}/", most.saturating_sub(1)) }
}

fn one_of(words: impl Iterator<Item = String>) -> String {
    words.map(|word| literal(&word)).collect::<Vec<_>>().join(" | ")
}

/// A literal of the grammar, which has the strings of JSON.
fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
