//! Simulated workers: an explicit model of frozen language models. `docs/world.md` has the equations.

use crate::check::ability;
use crate::draws;
use crate::item::{Known, Proposal, WorldItem};
use crate::preset::{Choices, FamilyFit, Fitted, LevelFit, Preset, ReaderFit};
use crate::skill::{SkillFit, TaskFamily, fit};
use crate::text::{self, Manner};
use async_trait::async_trait;
use lemon_exec::worker::{AgentPrompt, AskError, FailedCost, Reply, Request, Usage};
use lemon_exec::{Backend, Clock, Level, Worker};
use lemon_num::{Random, logistic};
use lemon_task::Item;
use lemon_trace::FailureKind;
use std::collections::HashMap;
use std::sync::Arc;

/// A world: the items it knows and how its workers fare on them.
pub struct World {
    items: HashMap<Arc<str>, WorldItem>,
    fitted: Fitted,
    choices: Choices,
    preset: Preset,
    noise: AgentNoise,
    /// Items no reply can be made up for.
    skipped: usize,
}

/// The longest text that is an answer without its reasoning, in bytes.
const BARE_READING: usize = 80;

/// What an agent's noise depends on, beside the task, the agent and the seed. The probabilities are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AgentNoise {
    /// On everything it is told and reads: an agent whose inputs changed draws afresh, as a language model does.
    #[default]
    Fresh,
    /// On nothing else: an agent whose inputs changed keeps its noise, so that a changed team differs from the original only
    /// as far as the change made it. Common random numbers, which only a simulation can have.
    Kept,
}

impl World {
    /// The same world with noise of the other kind.
    #[must_use]
    pub fn with_noise(self, noise: AgentNoise) -> Self {
        World { noise, ..self }
    }

    /// The same world with other chosen figures. Its workers go by another name: what they say is not what those of the preset
    /// say.
    #[must_use]
    pub fn with_choices(self, choices: Choices) -> Self {
        World { choices, ..self }
    }

    /// A world of these items.
    pub fn new<'a>(preset: Preset, items: impl IntoIterator<Item = &'a Item>) -> Self {
        World::with_figures(preset.fitted().clone(), preset, items)
    }

    /// A world of these items with figures of one's own.
    pub fn with_figures<'a>(fitted: Fitted, preset: Preset, items: impl IntoIterator<Item = &'a Item>) -> Self {
        let mut world = World {
            items: HashMap::new(),
            fitted,
            choices: preset.choices(),
            preset,
            noise: AgentNoise::Fresh,
            skipped: 0,
        };
        let items: Vec<&Item> = items.into_iter().collect();
        let mut known = Known::default();
        items.iter().for_each(|item| known.add(item));
        for item in items {
            match WorldItem::new(item, &world.fitted, &known) {
                Some(made) => drop(world.items.insert(item.task.question.trim().into(), made)),
                None => world.skipped += 1,
            }
        }
        world
    }

    /// Items no reply can be made up for: programs without a published solution.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// The probability that one agent of a capacity is right alone; `None` for a question the world does not know.
    pub fn solo(&self, question: &str, level: usize) -> Option<f64> {
        let item = self.items.get(question.trim())?;
        item.log_odds(self.fit(item), &self.choices, level).map(|odds| self.choices.chance(odds))
    }

    /// The difficulty of a question, from its features; `None` for a question the world does not know.
    pub fn difficulty(&self, question: &str) -> Option<f64> {
        Some(self.items.get(question.trim())?.difficulty)
    }

    /// The workers of this world.
    pub fn backend(self) -> Backend {
        let world = self.name();
        let level = |name: &str| Level { identity: format!("sim/{world}/{name}").into(), ..Level::new(name) };
        Backend {
            name: format!("sim ({world})"),
            levels: self.preset.levels().iter().map(|name| level(name)).collect(),
            worker: Arc::new(self),
            clock: Clock::Simulated,
            code: None,
            tools: None,
        }
    }

    /// The preset, and a mark of the chosen figures where they are not its own: replies are kept under this name.
    fn name(&self) -> String {
        let preset = self.preset.as_str();
        if self.choices == self.preset.choices() {
            return preset.to_owned();
        }
        format!("{preset}+{:08x}", draws::draws(0, &["choices", &format!("{:?}", self.choices)]).next_u64() >> 32)
    }

    fn fit(&self, item: &WorldItem) -> &FamilyFit {
        item.fit(&self.fitted)
    }
}

#[async_trait]
impl Worker for World {
    async fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        self.reply_to(request)
    }
}

impl World {
    /// The reply to a request: nothing is waited for.
    pub(crate) fn reply_to(&self, request: &Request) -> Result<Reply, AskError> {
        let unknown = |fact: &str| AskError::free(FailureKind::NotRecorded, fact);
        let agent_prompt =
            request.agent_prompt.as_ref().ok_or_else(|| unknown("a simulated worker cannot write specifications"))?;
        let item = self.items.get(agent_prompt.question.trim());
        let item = item.ok_or_else(|| unknown("the simulated world does not know this task"))?;
        let agent = Asked::new(self, item, agent_prompt, request);
        let agent = agent.ok_or_else(|| unknown("the world has no figures for this kind of task"))?;
        let speed = self.choices.speed;
        let speed = speed.get(request.level).or(speed.last()).copied().unwrap_or(50.0);
        let (text, truncated) = agent.reply();
        let reply = finish(request, text, format!("sim-{}", request.capacity), speed, agent.tokens())?;
        Ok(Reply { truncated, ..reply })
    }
}

/// Counts, times and cuts a reply as an endpoint would that writes `speed` tokens a second. It has so many tokens as told, or
/// one for four characters.
pub(crate) fn finish(
    request: &Request,
    text: String,
    model: String,
    speed: f64,
    told: Option<u64>,
) -> Result<Reply, AskError> {
    let tokens = |text: &str| (text.len() as u64).div_ceil(4);
    let tokens_in = request.messages.iter().map(|message| tokens(&message.content) + 4).sum();
    let tokens_out = told.unwrap_or_else(|| tokens(&text));
    let usage = |tokens_out| Usage { tokens_in, tokens_out, counted: true };
    if tokens_out > request.max_tokens {
        let cut: String = text.chars().take(4 * request.max_tokens as usize).collect();
        let error = AskError::free(FailureKind::Truncated, "the reply did not fit into max_tokens");
        let cost = FailedCost::Known(usage(request.max_tokens));
        return Err(AskError { cost, partial: Some(cut), ..error });
    }
    let seconds = 0.2 + tokens_in as f64 / 4000.0 + tokens_out as f64 / speed;
    Ok(Reply {
        text,
        usage: usage(tokens_out),
        model: Some(model),
        simulated_s: Some(seconds),
        confidence: None,
        truncated: false,
        tool_calls: Vec::new(),
    })
}

/// One agent, asked.
struct Asked<'a> {
    item: &'a WorldItem,
    fit: &'a FamilyFit,
    figures: &'a LevelFit,
    choices: &'a Choices,
    agent_prompt: &'a AgentPrompt,
    /// Log-odds of its own attempt.
    odds: f64,
    proposals: Vec<(Proposal, f64)>,
    seed: u64,
    capacity: &'a str,
    noise: AgentNoise,
}

impl<'a> Asked<'a> {
    fn new(world: &'a World, item: &'a WorldItem, agent_prompt: &'a AgentPrompt, request: &'a Request) -> Option<Self> {
        let fit = world.fit(item);
        let choices = &world.choices;
        let weight = |text: &str| if text.len() > BARE_READING { 1.0 } else { choices.bare_answer };
        let read = |text: &Arc<str>| item.proposal(text).map(|proposal| (proposal, weight(text)));
        Some(Asked {
            item,
            fit,
            figures: fit.levels.get(request.level.min(fit.levels.len().saturating_sub(1)))?,
            choices,
            agent_prompt,
            odds: item.log_odds(fit, choices, request.level)?,
            proposals: agent_prompt.readings.iter().filter_map(read).collect(),
            seed: request.seed,
            capacity: &request.capacity,
            noise: world.noise,
        })
    }

    /// The draws for one purpose: keyed by task, agent (the seed holds its id) and, unless noise is kept, by everything it is
    /// told and reads.
    fn draws(&self, purpose: &str) -> Random {
        let AgentPrompt { question, base, role, duty, readings, .. } = self.agent_prompt;
        let mut parts = vec![purpose, question.as_ref()];
        if self.noise == AgentNoise::Fresh {
            parts.extend([self.capacity, base, role, duty]);
            parts.extend(readings.iter().map(AsRef::as_ref));
        }
        draws::draws(self.seed, &parts)
    }

    /// The text, and whether it was cut off before it states an answer.
    fn reply(&self) -> (String, bool) {
        let mut words = self.draws("words");
        let length = self.figures.characters * self.stretch(&mut words);
        if text::hands_on_notes(&self.agent_prompt.base, self.item.family) {
            let good = self.draws("plan").chance(self.choices.chance(self.own_odds() + 1.0));
            return (text::plan(self.item, good, length * 0.6, &mut words), false);
        }
        let answer = self.answer();
        if answer != self.item.right && self.figures.cut > 0.0 && self.draws("cut").chance(self.figures.cut) {
            return (text::unfinished(&self.agent_prompt.question, length, &mut words), true);
        }
        let manner = match self.agent_prompt.base.as_str() {
            "critic" | "verifier" | "tester" if self.has_read() => Manner::Check,
            "judge" | "summariser" if self.has_read() => Manner::Decide,
            _ => Manner::Solve,
        };
        let length = if self.agent_prompt.asks_for_answer_alone() { 0.0 } else { length };
        (text::reply(self.item, &self.agent_prompt.question, &manner, &answer, length, &mut words), false)
    }

    /// A factor of a length; its mean is 1.
    fn stretch(&self, draws: &mut Random) -> f64 {
        let spread = self.figures.spread;
        (spread * draws.normal() - spread * spread / 2.0).exp()
    }

    /// The tokens of its reply, where they are on record.
    fn tokens(&self) -> Option<u64> {
        let mean = self.reader().map_or(self.figures.tokens, |reader| reader.tokens);
        // The draws of the words, so that a longer text has more tokens.
        (mean > 0.0).then(|| (mean * self.stretch(&mut self.draws("words"))).round().max(1.0) as u64)
    }

    /// What is on record of agents of its base role that read others.
    fn reader(&self) -> Option<&'a ReaderFit> {
        let readings = &self.agent_prompt.readings;
        let base = &self.agent_prompt.base;
        if readings.is_empty() || self.proposals.is_empty() {
            return None;
        }
        let bare = readings.iter().all(|text| text.len() <= BARE_READING);
        let answers = self.fit.readers.get(&format!("{base}/answer"));
        let whole = self.fit.readers.get(base);
        if bare { answers.or(whole) } else { whole.or(answers) }
    }

    fn has_read(&self) -> bool {
        !self.proposals.is_empty()
    }

    /// Log-odds of its own attempt, before it considers what others propose.
    fn own_odds(&self) -> f64 {
        let choices = self.choices;
        let bears = |text: &str, weight: f64| match fit(&self.item.needs, text) {
            SkillFit::Helps => weight,
            SkillFit::Neutral => 0.0,
            SkillFit::Misses => -weight,
        };
        let AgentPrompt { base, role, duty, readings, .. } = self.agent_prompt;
        let notes = readings.iter().filter(|text| self.item.proposal(text).is_none());
        let notes: f64 = notes.map(|text| bears(text, choices.plan)).sum();
        let role_bonus = match base.as_str() {
            "critic" | "verifier" if self.has_read() => choices.check,
            "judge" => choices.judge,
            "programmer" if self.item.family != TaskFamily::Coding => -choices.wrong_role,
            "solver" | "expert" if self.item.family == TaskFamily::Coding => -choices.wrong_role,
            _ => 0.0,
        };
        let alone = self.item.family == TaskFamily::Reckoning && self.agent_prompt.asks_for_answer_alone();
        let alone = if alone { choices.without_working } else { 0.0 };
        let duty = bears(&format!("{role} {duty}"), choices.duty);
        self.odds + duty + notes.clamp(-choices.plan, choices.plan) + role_bonus - alone
    }

    /// The answer it arrives at.
    fn answer(&self) -> String {
        if self.agent_prompt.base == "summariser" && self.has_read() {
            return self.most_proposed();
        }
        // A stream for each purpose, so that what one takes does not shift another.
        let own_right = self.draws("attempt").chance(self.choices.chance(self.own_odds()));
        let own = match own_right {
            true => Proposal::Right,
            false => Proposal::Wrong(self.item.wrong_answer(self.figures.favourite, &mut self.draws("slip"))),
        };
        if !self.has_read() {
            return self.stated(&own);
        }
        let revised = match self.reader() {
            Some(reader) => {
                let right = self.proposals.iter().filter(|(proposal, _)| *proposal == Proposal::Right).count();
                // A reading that states no answer is not right.
                reader.at(right as f64 / self.agent_prompt.readings.len().max(1) as f64)
            }
            None => self.revised(own_right),
        };
        match self.draws("revision").chance(revised) {
            true => self.item.right.clone(),
            false => self.wrong_among(&own, &mut self.draws("choice")),
        }
    }

    /// How likely it is right after reading: the debate record's logistic.
    fn revised(&self, own_right: bool) -> f64 {
        let weight: f64 = self.proposals.iter().map(|(_, weight)| weight).sum();
        let signed = |(proposal, weight): &(Proposal, f64)| match proposal {
            Proposal::Right => *weight,
            Proposal::Wrong(_) => -weight,
        };
        let support = self.proposals.iter().map(signed).sum::<f64>() / (weight + 1.0);
        let checks = matches!(self.agent_prompt.base.as_str(), "critic" | "verifier");
        let trust = if checks { self.choices.check_trust } else { 0.0 };
        let revision = &self.fit.revision;
        let own = f64::from(u8::from(own_right));
        // Trust works both ways: a checker that is wrong is wrong more firmly.
        let trust = if own_right { trust } else { -trust / 2.0 };
        let ability = ability(self.figures.accuracy) + self.choices.level_shift;
        let either_right = own_right || self.proposals.iter().any(|(proposal, _)| *proposal == Proposal::Right);
        match (either_right, self.agent_prompt.base.as_str()) {
            (true, _) => logistic(revision.log_odds(own, support, ability) + trust),
            // A judge chooses and does not look again.
            (false, "judge") => 0.0,
            (false, _) => revision.second_look * self.choices.chance(self.own_odds()),
        }
    }

    fn stated(&self, proposal: &Proposal) -> String {
        match proposal {
            Proposal::Right => self.item.right.clone(),
            Proposal::Wrong(answer) => answer.clone(),
        }
    }

    /// A wrong answer of those in the room, or a new one.
    fn wrong_among(&self, own: &Proposal, draws: &mut Random) -> String {
        let all = self.proposals.iter().map(|(proposal, _)| proposal).chain([own]);
        let wrong: Vec<&String> = all
            .filter_map(|proposal| match proposal {
                Proposal::Wrong(answer) => Some(answer),
                Proposal::Right => None,
            })
            .collect();
        match draws.pick(&wrong) {
            Some(answer) if !self.item.is_code() => (*answer).clone(),
            _ => self.item.wrong_answer(self.figures.favourite, draws),
        }
    }

    fn most_proposed(&self) -> String {
        let count = |wanted: &Proposal| self.proposals.iter().filter(|(other, _)| other == wanted).count();
        // The last of equals, so that the earliest wins under `max_by_key`, which takes the last.
        let most = self.proposals.iter().rev().map(|(proposal, _)| proposal).max_by_key(|proposal| count(proposal));
        most.map_or_else(String::new, |proposal| match proposal {
            Proposal::Wrong(_) if self.item.is_code() => self.item.wrong.first().cloned().unwrap_or_default(),
            proposal => self.stated(proposal),
        })
    }
}
