//! Whether a draft is a team: ids, roles, limits and references.

mod graph;

use crate::diagnostic::{Code, Faults, did_you_mean, line_of, list, one_of, quote};
use crate::parse::{Draft, DraftAgent, References, Written};
use crate::{Agent, Language};
use std::collections::HashMap;

/// Ids with a meaning of their own in traces and prompts.
const RESERVED_IDS: [&str; 5] = ["orchestrator", "task", "system", "user", "assistant"];

/// The references of a draft, resolved as far as they can be.
#[derive(Default)]
pub(crate) struct Resolved {
    /// The agents each agent reads, numbered through all rounds.
    pub(crate) parents: Vec<Vec<usize>>,
    /// Agents on the longest path of this round that ends at each.
    pub(crate) depths: Vec<usize>,
    /// The agents whose results become the answer, numbered through all rounds.
    pub(crate) answer_from: Vec<usize>,
}

/// Reports everything that keeps a draft from being a team.
pub(crate) fn check(
    draft: &Draft,
    source: &str,
    language: &Language,
    earlier: &[String],
    faults: &mut Faults,
) -> Resolved {
    let mut own = HashMap::new();
    for (position, agent) in draft.agents.iter().enumerate() {
        if let Some(id) = &agent.id {
            own.entry(id.value.as_str()).or_insert(position);
        }
    }
    let before = earlier.iter().enumerate().map(|(number, id)| (id.as_str(), number)).collect();
    let mut check = Check { draft, source, language, earlier, before, own, faults };
    check.size();
    check.ids();
    for agent in &draft.agents {
        check.words(agent);
        check.tools(agent);
    }
    check.references()
}

struct Check<'d, 'f> {
    draft: &'d Draft,
    source: &'d str,
    language: &'d Language,
    earlier: &'d [String],
    /// Agents of earlier rounds, by id.
    before: HashMap<&'d str, usize>,
    /// Agents of this round, by id; of two with the same id the first.
    own: HashMap<&'d str, usize>,
    faults: &'f mut Faults,
}

/// What a reference names.
enum Target {
    /// An agent of an earlier round, by its number.
    Earlier(usize),
    /// An agent of this round, by its position.
    Own(usize),
}

impl Check<'_, '_> {
    fn size(&mut self) {
        let limit = self.language.limits.agents;
        if let Some(agent) = self.draft.agents.get(limit) {
            let span = agent.id.as_ref().map_or(agent.entry, |id| id.span);
            let fact = format!("more than {limit} agents");
            self.faults.error(Code::TooManyAgents, span, fact, Some("merge or remove some".to_owned()));
        }
        let answer_is_given = self.draft.answer.as_ref().is_some_and(|answer| answer.from.is_some());
        let may_be_empty = self.draft.cut || (!self.earlier.is_empty() && answer_is_given);
        if self.draft.agents.is_empty() && !may_be_empty {
            let hint = if self.earlier.is_empty() {
                "begin with `agents:` and one entry per agent, each with `id`, `base` and `capacity`"
            } else {
                "add an agent, or name agents of an earlier round in `answer.from`"
            };
            self.faults.error(Code::EmptyTeam, self.draft.agents_span, "the team has no agents", Some(hint.to_owned()));
        }
    }

    fn ids(&mut self) {
        for (position, agent) in self.draft.agents.iter().enumerate() {
            let Some(Written { value: id, span }) = &agent.id else { continue };
            let limit = self.language.limits.id_chars;
            if !Agent::is_well_formed_id(id) {
                let fact = format!("{} is not an id: a letter, then letters, digits, `_` or `-`", quote(id));
                let hint = format!("for example `{}`", well_formed(id, position, limit));
                self.faults.error(Code::MalformedId, *span, fact, Some(hint));
            } else if RESERVED_IDS.contains(&id.as_str()) {
                let fact = format!("the id `{id}` has a meaning of its own");
                let hint = format!("for example `{}`", well_formed(id, position, limit));
                self.faults.error(Code::ReservedId, *span, fact, Some(hint));
            }
            if id.chars().count() > limit {
                let fact = format!("the id {} is longer than {limit} characters", quote(id));
                self.faults.error(Code::IdTooLong, *span, fact, Some("shorten it".to_owned()));
            }
            let first = self.own.get(id.as_str()).copied().filter(|first| *first < position);
            if let Some(first) = first.and_then(|first| self.draft.agents.get(first)?.id.as_ref()) {
                let hint = format!("the first is in line {}", line_of(self.source, first.span.start));
                self.faults.error(Code::DuplicateId, *span, format!("the id {} is given twice", quote(id)), Some(hint));
            } else if self.before.contains_key(id.as_str()) {
                let fact = format!("an agent of an earlier round has the id {}", quote(id));
                let hint = "ids are unique in a run; to read that agent, name it in `after`".to_owned();
                self.faults.error(Code::EarlierId, *span, fact, Some(hint));
            }
        }
    }

    /// Base, capacity, role and duty.
    fn words(&mut self, agent: &DraftAgent) {
        let limits = &self.language.limits;
        if let Some(base) = agent.base.as_ref().filter(|base| self.language.roles.get(&base.value).is_none()) {
            let names = self.language.roles.iter().map(|role| role.name.as_str());
            let fact = format!("unknown base role {}", quote(&base.value));
            self.faults.error(Code::UnknownBase, base.span, fact, Some(one_of(&base.value, names)));
        }
        if let Some(capacity) = agent.capacity.as_ref().filter(|it| !self.language.capacities.contains(&it.value)) {
            let levels = self.language.capacities.iter().map(String::as_str);
            let fact = format!("unknown capacity {}", quote(&capacity.value));
            self.faults.error(Code::UnknownCapacity, capacity.span, fact, Some(one_of(&capacity.value, levels)));
        }
        self.prose(agent.role.as_ref(), "role", limits.role_chars, Code::RoleTooLong);
        self.prose(agent.duty.as_ref(), "duty", limits.duty_chars, Code::DutyTooLong);
    }

    fn prose(&mut self, written: Option<&Written<Option<String>>>, key: &str, limit: usize, too_long: Code) {
        let Some(Written { value: Some(text), span }) = written else { return };
        let length = text.chars().count();
        if length > limit {
            let fact = format!("the {key} has {length} characters, {limit} are allowed");
            self.faults.error(too_long, *span, fact, Some("shorten it".to_owned()));
        }
        // Newlines and tabs are ordinary in prose; other control characters can drive a terminal or end a string.
        if let Some(found) = text.chars().find(|it| it.is_control() && *it != '\n' && *it != '\t') {
            let fact = format!("the {key} contains the control character U+{:04X}", u32::from(found));
            self.faults.error(Code::ControlCharacter, *span, fact, Some("remove it".to_owned()));
        }
    }

    /// The tools of an agent: known here, each once, not too many.
    fn tools(&mut self, agent: &DraftAgent) {
        let items = agent.tools.as_ref().and_then(|tools| tools.items.as_deref()).unwrap_or_default();
        let limit = self.language.limits.tools;
        if let Some(first_beyond) = items.get(limit) {
            let fact = format!("more than {limit} tools in `tools`");
            self.faults.error(Code::TooManyTools, first_beyond.span, fact, Some("keep the most useful".to_owned()));
        }
        for (place, Written { value: tool, span }) in items.iter().enumerate() {
            if items.iter().take(place).any(|earlier| earlier.value == *tool) {
                let fact = format!("{} is named twice in `tools`", quote(tool));
                self.faults.error(Code::DuplicateTool, *span, fact, Some("keep one of them".to_owned()));
            } else if !self.language.tools.contains(tool) {
                let hint = match self.language.tools.is_empty() {
                    true => "no tool is configured: add `[tools.python]` to lemon.toml, say".to_owned(),
                    false => one_of(tool, self.language.tools.iter().map(String::as_str)),
                };
                self.faults.error(Code::UnknownTool, *span, format!("unknown tool {}", quote(tool)), Some(hint));
            }
        }
    }

    fn references(&mut self) -> Resolved {
        let draft = self.draft;
        let mut targets = Vec::with_capacity(draft.agents.len());
        for position in 0..draft.agents.len() {
            targets.push(self.agent_references(position));
        }
        self.order(&targets);
        let mut resolved = Resolved::default();
        for (position, targets) in targets.iter().enumerate() {
            let own = || targets.iter().filter_map(|(target, _)| target.own().filter(|parent| *parent < position));
            let depth = own().filter_map(|parent| resolved.depths.get(parent)).max().map_or(1, |deepest| deepest + 1);
            let numbers = targets.iter().map(|(target, _)| target.number(self.earlier.len()));
            resolved.parents.push(numbers.collect());
            resolved.depths.push(depth);
        }
        self.depth(&resolved.depths);
        resolved.answer_from = self.answer(&targets);
        resolved
    }

    /// The references of one agent that name something, each with its position in the list.
    fn agent_references(&mut self, position: usize) -> Vec<(Target, usize)> {
        let Some(after) = self.draft.agents.get(position).and_then(|agent| agent.after.as_ref()) else {
            return Vec::new();
        };
        self.resolve(after, "after", Some(position))
    }

    /// Resolves a list of ids; `reader` is the agent that has it, or `None` for the answer.
    fn resolve(&mut self, list: &References, key: &str, reader: Option<usize>) -> Vec<(Target, usize)> {
        let items = list.items.as_deref().unwrap_or_default();
        let limit = self.language.limits.parents;
        if let Some(first_beyond) = items.get(limit) {
            let fact = format!("more than {limit} references in `{key}`");
            self.faults.error(Code::TooManyParents, first_beyond.span, fact, Some("keep the most useful".to_owned()));
        }
        let mut targets = Vec::with_capacity(items.len());
        let mut seen = HashMap::with_capacity(items.len());
        for (place, item) in items.iter().enumerate() {
            if seen.insert(item.value.as_str(), place).is_some() {
                let fact = format!("{} is named twice in `{key}`", quote(&item.value));
                self.faults.error(Code::DuplicateReference, item.span, fact, Some("keep one of them".to_owned()));
                continue;
            }
            if let Some(position) = self.own.get(item.value.as_str()) {
                targets.push((Target::Own(*position), place));
            } else if let Some(number) = self.before.get(item.value.as_str()) {
                targets.push((Target::Earlier(*number), place));
            } else {
                self.missing(item, reader);
            }
        }
        targets
    }

    fn missing(&mut self, item: &Written<String>, reader: Option<usize>) {
        if self.draft.agents_missing {
            return;
        }
        let readable = reader.unwrap_or(self.draft.agents.len());
        let own = self.draft.agents.iter().take(readable).filter_map(|agent| agent.id.as_ref());
        let mut candidates: Vec<&str> = own.map(|id| id.value.as_str()).collect();
        candidates.extend(self.earlier.iter().map(String::as_str));
        // An id used twice is a fault of its own; here it is one name.
        candidates.sort_unstable();
        candidates.dedup();
        let hint = match did_you_mean(&item.value, candidates.iter().copied()) {
            Some(hint) => hint,
            None if item.value == "task" => "every agent sees the task; leave it out".to_owned(),
            None if candidates.is_empty() => "the first agent has no agent to read: write `after: []`".to_owned(),
            None if candidates.len() > 12 => "name one of the agents before it".to_owned(),
            None => format!("known here: {}", list(candidates)),
        };
        let fact = format!("there is no agent {}", quote(&item.value));
        self.faults.error(Code::MissingReference, item.span, fact, Some(hint));
    }

    /// Reports references to the agent itself or to later ones: as a cycle where they close one.
    fn order(&mut self, targets: &[Vec<(Target, usize)>]) {
        let own_parents: Vec<Vec<usize>> =
            targets.iter().map(|targets| targets.iter().filter_map(|(target, _)| target.own()).collect()).collect();
        let mut reported = Vec::new();
        for (position, targets) in targets.iter().enumerate() {
            for (target, place) in targets {
                let Some(parent) = target.own().filter(|parent| *parent >= position) else { continue };
                match graph::path(&own_parents, parent, position) {
                    None => self.later(position, parent, *place),
                    Some(path) => {
                        let mut members = path.clone();
                        members.sort_unstable();
                        if !reported.contains(&members) {
                            reported.push(members);
                            self.cycle(position, &path, *place);
                        }
                    }
                }
            }
        }
    }

    fn later(&mut self, position: usize, parent: usize, place: usize) {
        let Some(item) = self.draft.reference(position, place) else { return };
        let (reader, read) = (self.draft.id(position), self.draft.id(parent));
        let fact = format!("{} reads {}, which comes later", quote(reader), quote(read));
        let hint = format!("move {} before {}", quote(read), quote(reader));
        self.faults.error(Code::LaterReference, item.span, fact, Some(hint));
    }

    fn cycle(&mut self, position: usize, path: &[usize], place: usize) {
        let Some(item) = self.draft.reference(position, place) else { return };
        if path == [position] {
            let fact = format!("{0} reads itself: {0} → {0}", quote(self.draft.id(position)));
            self.faults.error(Code::Cycle, item.span, fact, Some("remove this reference".to_owned()));
            return;
        }
        let start = self.draft.id(position);
        let names: Vec<&str> = std::iter::once(start).chain(path.iter().map(|agent| self.draft.id(*agent))).collect();
        let fact = format!("agents wait for each other: {}", quote_path(&names));
        let hint = "an agent reads only earlier ones; remove one of these references".to_owned();
        self.faults.error(Code::Cycle, item.span, fact, Some(hint));
    }

    fn depth(&mut self, depths: &[usize]) {
        let limit = self.language.limits.depth;
        let Some(position) = depths.iter().position(|depth| *depth > limit) else { return };
        let Some(agent) = self.draft.agents.get(position) else { return };
        let span = agent.after.as_ref().map_or(agent.entry, |after| after.span);
        let fact = format!("a chain of more than {limit} agents ends at {}", quote(self.draft.id(position)));
        self.faults.error(Code::TooDeep, span, fact, Some("let some of them work side by side".to_owned()));
    }

    /// The numbers of the agents the answer comes from.
    fn answer(&mut self, targets: &[Vec<(Target, usize)>]) -> Vec<usize> {
        let mut read = vec![false; self.draft.agents.len()];
        for parent in targets.iter().flatten().filter_map(|(target, _)| target.own()) {
            read[parent] = true; // A position of `own`, hence of `agents`.
        }
        let sinks = || read.iter().enumerate().filter(|(_, read)| !**read).map(|(position, _)| position);
        let Some(from) = self.draft.answer.as_ref().and_then(|answer| answer.from.as_ref()) else {
            return self.default_answer(sinks().collect());
        };
        let Some(items) = &from.items else { return self.default_answer(sinks().collect()) };
        if items.is_empty() {
            let hint = "name at least one agent, or leave `from` out".to_owned();
            self.faults.error(Code::EmptyAnswer, from.span, "the answer names no agent", Some(hint));
        }
        let targets = self.resolve(from, "answer.from", None);
        // Where something is wrong, the missing reader may well be a part of it.
        if !self.faults.any_error() {
            for sink in sinks().filter(|sink| targets.iter().all(|(target, _)| target.own() != Some(*sink))) {
                self.unread(sink);
            }
        }
        targets.iter().map(|(target, _)| target.number(self.earlier.len())).collect()
    }

    /// Without `answer.from`, the agents that no other agent reads. They have to fit in a list, as if they were written.
    fn default_answer(&mut self, sinks: Vec<usize>) -> Vec<usize> {
        let limit = self.language.limits.parents;
        if sinks.len() > limit && !self.draft.cut {
            let fact =
                format!("{} agents are read by no other agent; at most {limit} can make the answer", sinks.len());
            let hint = "name those the answer comes from in `answer.from`".to_owned();
            self.faults.error(Code::TooManyParents, self.draft.agents_span, fact, Some(hint));
        }
        sinks.into_iter().map(|position| position + self.earlier.len()).collect()
    }

    fn unread(&mut self, position: usize) {
        let Some(agent) = self.draft.agents.get(position) else { return };
        let span = agent.id.as_ref().map_or(agent.entry, |id| id.span);
        let fact = format!("no agent reads {}, and it is not part of the answer", quote(self.draft.id(position)));
        let hint = "let another agent read it, add it to `answer.from`, or remove it".to_owned();
        self.faults.warning(Code::UnreadAgent, span, fact, Some(hint));
    }
}

impl Target {
    fn own(&self) -> Option<usize> {
        match self {
            Target::Own(position) => Some(*position),
            Target::Earlier(_) => None,
        }
    }

    fn number(&self, earlier: usize) -> usize {
        match self {
            Target::Earlier(number) => *number,
            Target::Own(position) => earlier + position,
        }
    }
}

impl Draft {
    fn id(&self, position: usize) -> &str {
        self.agents.get(position).and_then(|agent| agent.id.as_ref()).map_or("?", |id| &id.value)
    }

    fn reference(&self, position: usize, place: usize) -> Option<&Written<String>> {
        self.agents.get(position)?.after.as_ref()?.items.as_ref()?.get(place)
    }
}

/// `a → b → a`, shortened in the middle if long.
fn quote_path(names: &[&str]) -> String {
    const SHOWN: usize = 12;
    let mut shown: Vec<String> = names.iter().map(|name| quote(name)).collect();
    if shown.len() > SHOWN {
        shown.splice(SHOWN / 2..shown.len() - SHOWN / 2, ["…".to_owned()]);
    }
    shown.join(" → ")
}

/// An id like the one written, but well formed and not reserved.
fn well_formed(id: &str, position: usize, limit: usize) -> String {
    let mut cleaned = String::new();
    for character in id.chars() {
        if character.is_ascii_alphanumeric() || character == '-' {
            cleaned.push(character);
        } else if !cleaned.ends_with('_') {
            cleaned.push('_');
        }
    }
    let mut proposed = cleaned.trim_matches(['_', '-']).to_owned();
    if !proposed.starts_with(|first: char| first.is_ascii_alphabetic()) || RESERVED_IDS.contains(&proposed.as_str()) {
        proposed = if proposed.is_empty() { format!("agent{}", position + 1) } else { format!("agent-{proposed}") };
    }
    proposed.truncate(limit);
    proposed
}
