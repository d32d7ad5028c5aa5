//! A policy as an orchestrator: from a brief to tokens, and from tokens to a team.

use crate::pair::{Pair, Told};
use async_trait::async_trait;
use lemon_exec::Form;
use lemon_exec::orchestrator::{
    Draft, Orchestrator, OrchestratorError, RoundResult, WriteContext, assignment_within, instructions, plain_team,
};
use lemon_model::tokenizer::{Message, Role};
use lemon_model::{Grammar, Policy, PolicyError, Request, Sample, SampleSettings, Sequence, Tokenizer};
use lemon_spec::{Language, PLAIN, Shape, grammar, render, validate_round};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// An orchestrator that writes teams with a policy: cheap to clone.
#[derive(Clone)]
pub struct Writer {
    policy: Arc<Mutex<Box<dyn Policy>>>,
    encoder: LanguagePromptEncoder,
    settings: SampleSettings,
    /// What it is called in traces.
    name: String,
    /// First rounds that were written ahead, many at a time, by question.
    ahead: Arc<Mutex<HashMap<String, Team>>>,
    /// A first round that the policy is less sure of is replaced by one plain call.
    least_confidence: Option<f32>,
    /// What the levels are called where its teams run, weakest first, if not as at its desk.
    levels: Option<Vec<String>>,
}

/// A team that was written, and how sure the policy was of it.
#[derive(Debug, Clone)]
struct Team {
    text: String,
    /// How sure, as [`Writer::confidences`] says; measured only where something depends on it.
    confidence: Option<f32>,
}

/// What a policy needs to write: its tokens, and the grammar of teams. It turns briefs into requests.
#[derive(Clone)]
pub struct LanguagePromptEncoder {
    tokenizer: Tokenizer,
    language: Arc<Language>,
    shape: Shape,
    /// Tokens that a prompt may have.
    longest_prompt: usize,
    /// Rounds that a run has at most: the last one cannot ask for another.
    rounds: u32,
    grammars: Arc<Mutex<Grammars>>,
}

/// By the agents of the rounds before, and whether another round may follow.
type Grammars = HashMap<(Vec<String>, bool), Grammar>;

impl LanguagePromptEncoder {
    /// A desk for a model that reads so many tokens in all.
    pub fn new(tokenizer: Tokenizer, language: Arc<Language>, shape: Shape, positions: usize) -> Self {
        // A team of the largest shape has to fit behind the prompt; most are far shorter.
        let longest_prompt = positions.saturating_sub(MOST_TOKENS.min(positions / 2)).max(1);
        // One plain call is the guard's decision. Policies choose among the roles they were trained with.
        let language = Arc::new(Language { roles: language.roles.without(PLAIN), ..(*language).clone() });
        LanguagePromptEncoder { tokenizer, language, shape, longest_prompt, rounds: u32::MAX, grammars: Arc::default() }
    }

    /// The same for runs of at most so many rounds.
    #[must_use]
    pub fn with_rounds(self, rounds: u32) -> Self {
        LanguagePromptEncoder { rounds, ..self }
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// What a specification may say.
    pub fn language(&self) -> &Arc<Language> {
        &self.language
    }

    /// The prompt for one round. A task that is too long loses its middle: its beginning says what it is about, its end what
    /// is asked. Replies of earlier rounds lose their beginning before that: they are long, a small model reads few tokens,
    /// and the answer stands at the end.
    ///
    /// # Errors
    /// The model's chat template cannot be used.
    pub fn prompt(&self, brief: &WriteContext<'_>) -> Result<Vec<u32>, PolicyError> {
        let reply_chars = self.longest_prompt / REPLY_SHARE;
        let mut kept = brief.question.chars().count();
        loop {
            let question = shortened(brief.question, kept);
            let shorter =
                WriteContext { question: &question, tokens_left: None, results: brief.results.clone(), ..*brief };
            let messages = [
                Message { role: Role::System, content: instructions(&self.language) },
                Message { role: Role::User, content: assignment_within(&shorter, reply_chars) },
            ];
            let prompt = self.tokenizer.prompt(&messages)?;
            if prompt.len() <= self.longest_prompt || kept <= 1 {
                return Ok(prompt);
            }
            let excess = prompt.len() - self.longest_prompt;
            // A token has at least one character, as a rule several.
            kept = kept.saturating_sub(excess.max(16)).max(1);
        }
    }

    /// The grammar of a round that follows those with these agents.
    ///
    /// # Errors
    /// The grammar cannot be used: a defect.
    pub fn grammar(&self, earlier: &[String]) -> Result<Grammar, PolicyError> {
        self.grammar_of(earlier, true)
    }

    fn grammar_of(&self, earlier: &[String], another: bool) -> Result<Grammar, PolicyError> {
        let known = || self.grammars.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (earlier.to_vec(), another);
        if let Some(grammar) = known().get(&key) {
            return Ok(grammar.clone());
        }
        let shape = Shape { review: self.shape.review && another, ..self.shape.clone() };
        let made = Grammar::new(&grammar(&self.language, earlier, &shape), &self.tokenizer)?;
        known().insert(key, made.clone());
        Ok(made)
    }

    /// The request for one round.
    ///
    /// # Errors
    /// As [`Self::prompt`] and [`Self::grammar`].
    pub fn request(&self, brief: &WriteContext<'_>, constrained: bool) -> Result<Request, PolicyError> {
        let earlier: Vec<String> = brief.results.iter().map(|result| result.agent.to_owned()).collect();
        let another = brief.round < self.rounds;
        let grammar = if constrained { Some(self.grammar_of(&earlier, another)?) } else { None };
        Ok(Request { prompt: self.prompt(brief)?, grammar, seed: brief.seed })
    }

    /// The brief of a first round.
    pub fn first<'b>(&'b self, question: &'b str, seed: u64) -> WriteContext<'b> {
        WriteContext {
            question,
            round: 1,
            results: Vec::new(),
            language: &self.language,
            form: Form::of(question),
            tokens_left: None,
            seed,
        }
    }
}

/// What whoever wrote a pair was told.
pub fn write_context<'b>(pair: &'b Pair, language: &'b Language) -> WriteContext<'b> {
    let result = |told: &'b Told| RoundResult {
        agent: &told.agent,
        role: &told.role,
        status: told.status,
        reply: told.reply.as_deref(),
        sure: told.sure,
    };
    WriteContext {
        question: &pair.task.question,
        round: pair.round,
        results: pair.results.iter().map(result).collect(),
        language,
        form: Form::of(&pair.task.question),
        tokens_left: None,
        seed: pair.seed,
    }
}

/// A team that the bundled orchestrator is less sure of is replaced by one plain call: below this is what it writes for
/// tasks unlike all it was taught.
pub const LEAST_CONFIDENCE: f32 = 0.97;

/// Tokens that a team may have.
pub const MOST_TOKENS: usize = 1_024;

/// For so many tokens of a prompt, one character of each reply is read: 128 characters where a model reads 2,048 tokens, about
/// 4,000 where it reads 32,768.
const REPLY_SHARE: usize = 8;

/// A text of at most so many characters: its beginning and its end.
fn shortened(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let head = most.div_ceil(2);
    text.chars().take(head).chain(" … ".chars()).chain(text.chars().skip(count - (most - head))).collect()
}

impl Writer {
    /// A writer that draws its teams so.
    pub fn new(
        policy: Box<dyn Policy>,
        encoder: LanguagePromptEncoder,
        settings: SampleSettings,
        name: impl Into<String>,
    ) -> Self {
        Writer {
            policy: Arc::new(Mutex::new(policy)),
            encoder,
            settings,
            name: name.into(),
            ahead: Arc::default(),
            least_confidence: None,
            levels: None,
        }
    }

    /// The same with one plain call in place of every first round of which the policy is less sure than this, from 0 to 1.
    #[must_use]
    pub fn or_plain_below(self, least_confidence: f32) -> Self {
        Writer { least_confidence: Some(least_confidence), ..self }
    }

    /// The same for teams that run where the levels of model have other names: a model knows those it has learned. The
    /// weakest stands for the weakest, the strongest for the strongest, and those between by their place.
    #[must_use]
    pub fn for_levels(mut self, levels: &[String]) -> Self {
        self.levels = (levels != self.encoder.language.capacities).then(|| levels.to_vec());
        self
    }

    /// Where it writes.
    pub fn encoder(&self) -> &LanguagePromptEncoder {
        &self.encoder
    }

    /// A team with the names that the levels have where it runs.
    fn renamed(&self, text: String, earlier: &[String]) -> String {
        let Some(levels) = &self.levels else { return text };
        let known = &self.encoder.language.capacities;
        let Ok(plan) = validate_round(&text, &self.encoder.language, earlier) else { return text };
        let mut spec = plan.spec().clone();
        for agent in &mut spec.agents {
            let place = known.iter().position(|level| *level == agent.capacity).unwrap_or(0);
            // In proportion: 0 stays 0, the last stays the last.
            let place = place * levels.len().saturating_sub(1) / known.len().saturating_sub(1).max(1);
            if let Some(level) = levels.get(place) {
                agent.capacity.clone_from(level);
            }
        }
        render(&spec).text
    }

    /// Writes the first rounds of many tasks at once, which is far quicker than one by one. Only where nothing is drawn: a
    /// writer that draws writes another team for every seed.
    ///
    /// # Errors
    /// The policy failed.
    pub fn write_ahead(&self, questions: &[&str]) -> Result<(), PolicyError> {
        if self.settings.temperature > 0.0 {
            return Ok(());
        }
        let requests = questions.iter().map(|question| self.encoder.request(&self.encoder.first(question, 0), true));
        let teams = self.teams(&requests.collect::<Result<Vec<_>, _>>()?)?;
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.extend(questions.iter().map(|it| (*it).to_owned()).zip(teams));
        Ok(())
    }

    /// Writes teams, and says how sure the policy is of each where that decides something.
    fn teams(&self, requests: &[Request]) -> Result<Vec<Team>, PolicyError> {
        let samples = self.sample(requests)?;
        let confidences = match self.least_confidence {
            Some(_) => self.confidences(requests, &samples)?.into_iter().map(Some).collect(),
            None => vec![None; samples.len()],
        };
        let team = |(sample, confidence): (Sample, Option<f32>)| Team { text: sample.text, confidence };
        Ok(samples.into_iter().zip(confidences).map(team).collect())
    }

    /// How sure the policy is of teams that it wrote for these requests: 1 less the probability that it gives to one neutral
    /// agent, without a role or a duty of its own, where it wrote something else. It was taught such an agent for every
    /// task that it knows no better team for.
    ///
    /// # Errors
    /// The policy failed.
    pub fn confidences(&self, requests: &[Request], samples: &[Sample]) -> Result<Vec<f32>, PolicyError> {
        let neutral = self.neutral_teams();
        let mut sequences = Vec::new();
        for request in requests {
            let Some(grammar) = &request.grammar else { continue };
            for text in &neutral {
                let tokens = grammar.encode(text)?;
                sequences.push(Sequence { prompt: request.prompt.clone(), tokens, grammar: request.grammar.clone() });
            }
        }
        let scores = self.policy.lock().unwrap_or_else(PoisonError::into_inner).score(&sequences, 1.0)?;
        let mut confidences = Vec::new();
        for (sample, scores) in samples.iter().zip(scores.chunks(neutral.len().max(1))) {
            let likely: f32 = scores.iter().map(|score| score.iter().sum::<f32>().exp()).sum();
            confidences.push(if neutral.contains(&sample.text) { 1.0 } else { 1.0 - likely });
        }
        Ok(confidences)
    }

    /// Teams of one neutral agent of the strongest level, as they are taught.
    fn neutral_teams(&self) -> Vec<String> {
        let team = |base: &str| {
            let capacity = self.encoder.language.capacities.last()?;
            let text = format!("agents:\n  - {{id: a1, base: {base}, capacity: {capacity}}}\n");
            let plan = validate_round(&text, &self.encoder.language, &[]).ok()?;
            Some(render(plan.spec()).text)
        };
        ["solver", "programmer"].into_iter().filter_map(team).collect()
    }

    /// Writes teams for requests that [`LanguagePromptEncoder::request`] made.
    ///
    /// # Errors
    /// The policy failed.
    pub fn sample(&self, requests: &[Request]) -> Result<Vec<Sample>, PolicyError> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner).sample(requests, &self.settings)
    }

    /// The team that was written ahead, or a new one. The policy runs on a thread for blocking work.
    async fn write(&self, context: &WriteContext<'_>) -> Result<Team, OrchestratorError> {
        if context.round == 1
            && let Some(team) = self.ahead.lock().unwrap_or_else(PoisonError::into_inner).get(context.question)
        {
            return Ok(team.clone());
        }
        let failed = |reason: String| OrchestratorError::Policy { model: self.name.clone(), reason };
        let request = self.encoder.request(context, true).map_err(|error| failed(error.to_string()))?;
        let writer = self.clone();
        let teams = tokio::task::spawn_blocking(move || writer.teams(&[request])).await;
        let teams = teams.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))?;
        teams.into_iter().next().ok_or_else(|| failed("expected one team, got none".to_owned()))
    }

    /// Whether the policy is too unsure of a team for it to run.
    fn doubts(&self, team: &Team) -> bool {
        matches!((self.least_confidence, team.confidence), (Some(least), Some(confidence)) if confidence < least)
    }
}

#[async_trait]
impl Orchestrator for Writer {
    // No `repair`: the policy would write the same again.
    async fn draft(&self, context: &WriteContext<'_>) -> Result<Option<Draft>, OrchestratorError> {
        let team = self.write(context).await?;
        if context.round == 1 && self.doubts(&team) {
            return Ok(plain_team(context.language).map(Draft::Guarded));
        }
        let earlier: Vec<String> = context.results.iter().map(|result| result.agent.to_owned()).collect();
        Ok(Some(Draft::Learned { text: self.renamed(team.text, &earlier), model: self.name.clone() }))
    }

    fn fallback(&self, brief: &WriteContext<'_>) -> Option<String> {
        let capacity = brief.language.capacities.last()?;
        (brief.round == 1).then(|| format!("agents:\n  - {{id: a1, base: solver, capacity: {capacity}}}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_model::{Example, StepReport, StepSettings, TablePolicy};
    use lemon_spec::validate;
    use lemon_trace::AgentStatus;

    /// Somebody who knows nothing and writes any team.
    fn writer(settings: SampleSettings) -> Writer {
        let tokenizer = Tokenizer::train(std::iter::empty(), 257, &["<|end|>"]).unwrap();
        let shape = Shape { agents: 4, role_chars: 6, duty_chars: 8, ..Shape::default() };
        let encoder = LanguagePromptEncoder::new(tokenizer.clone(), Arc::new(Language::default()), shape, 4_096);
        Writer::new(Box::new(TablePolicy::new(tokenizer, 2, 1)), encoder, settings, "table")
    }

    struct FailingPolicy;

    impl Policy for FailingPolicy {
        fn sample(&self, _: &[Request], _: &SampleSettings) -> Result<Vec<Sample>, PolicyError> {
            Err(PolicyError::Request("out of memory".to_owned()))
        }

        fn score(&self, _: &[Sequence], _: f32) -> Result<Vec<Vec<f32>>, PolicyError> {
            unreachable!("nothing was sampled")
        }

        fn update(&mut self, _: &[Example], _: &StepSettings) -> Result<StepReport, PolicyError> {
            unreachable!("a writer does not learn")
        }
    }

    /// What the writer drafts.
    fn draft(writer: &Writer, context: &WriteContext<'_>) -> Option<Draft> {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(writer.draft(context)).unwrap()
    }

    fn text(draft: Option<Draft>) -> String {
        match draft {
            Some(Draft::Learned { text, model }) if model == "table" => text,
            _ => panic!("nothing was written"),
        }
    }

    #[test]
    fn levels_go_by_their_names_where_teams_run() {
        let language = |names: &[&str]| Language {
            capacities: names.iter().map(|it| (*it).to_owned()).collect(),
            ..Language::default()
        };
        for names in [&["tiny", "giant"][..], &["one"], &["a", "b", "c", "d", "e"], &["small", "medium", "large"]] {
            let language = language(names);
            let writer = writer(SampleSettings::default()).for_levels(&language.capacities);
            for seed in 0..30 {
                let brief = WriteContext { language: &language, ..writer.encoder.first("A task.", seed) };
                let text = text(draft(&writer, &brief));
                let plan = validate(&text, &language).unwrap_or_else(|_| panic!("{text}"));
                // By rank: what was the weakest is the weakest, what was the strongest the strongest.
                let own = self::text(draft(&self::writer(SampleSettings::default()), &brief));
                let own = validate(&own, &Language::default()).unwrap();
                for (there, here) in plan.agents().iter().zip(own.agents()) {
                    match here.capacity.as_str() {
                        "small" => assert_eq!(there.capacity, names[0]),
                        "large" => assert_eq!(there.capacity, names[names.len() - 1]),
                        _ => assert_eq!(there.capacity, names[(names.len() - 1) / 2]),
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_written_ahead_is_what_would_have_been_written() {
        let settings = SampleSettings { temperature: 0.0, ..SampleSettings::default() };
        let (ahead, later) = (writer(settings), writer(settings));
        ahead.write_ahead(&["One?", "Two?"]).unwrap();
        assert_eq!(ahead.ahead.lock().unwrap().len(), 2);
        for question in ["One?", "Two?", "Three?"] {
            let brief = ahead.encoder.first(question, 0);
            assert_eq!(text(draft(&ahead, &brief)), text(draft(&later, &brief)));
        }
        let drawn = writer(SampleSettings::default());
        drawn.write_ahead(&["One?"]).unwrap();
        assert!(drawn.ahead.lock().unwrap().is_empty());
    }

    #[test]
    fn a_team_that_the_policy_doubts_becomes_one_plain_call() {
        let settings = SampleSettings { temperature: 0.0, ..SampleSettings::default() };
        // Nothing is surer than 1, and nothing less sure than 0.
        let (unsure, sure) = (writer(settings).or_plain_below(1.1), writer(settings).or_plain_below(0.0));
        let brief = unsure.encoder.first("One?", 0);
        match draft(&unsure, &brief) {
            Some(Draft::Guarded(text)) => assert_eq!(Some(text), plain_team(brief.language)),
            _ => panic!("the team was written all the same"),
        }
        assert_eq!(text(draft(&sure, &brief)), text(draft(&writer(settings), &brief)));
        // The same where it was written ahead.
        unsure.write_ahead(&["One?"]).unwrap();
        assert!(matches!(draft(&unsure, &brief), Some(Draft::Guarded(_))));
        let requests = [unsure.encoder.request(&brief, true).unwrap()];
        let samples = unsure.sample(&requests).unwrap();
        let confidence = unsure.confidences(&requests, &samples).unwrap()[0];
        assert!(confidence > 0.0 && confidence <= 1.0, "{confidence}");
    }

    #[test]
    fn a_policy_that_fails_is_an_error_and_no_empty_team() {
        let encoder = writer(SampleSettings::default()).encoder;
        let failing = Writer::new(Box::new(FailingPolicy), encoder.clone(), SampleSettings::default(), "failing");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let error = runtime.block_on(failing.draft(&encoder.first("One?", 0))).err().unwrap();
        assert_eq!(error.to_string(), "the orchestrator's policy `failing` failed: out of memory");
    }

    #[test]
    fn a_long_task_loses_its_middle() {
        assert_eq!(shortened("0123456789", 10), "0123456789");
        assert_eq!(shortened("0123456789", 4), "01 … 89");
        assert_eq!(shortened("0123456789", 1), "0 … ");
        let writer = writer(SampleSettings::default());
        let long = format!("First words. {} last words?", "x".repeat(20_000));
        let prompt = writer.encoder.prompt(&writer.encoder.first(&long, 0)).unwrap();
        assert!(prompt.len() <= writer.encoder.longest_prompt, "{}", prompt.len());
        let told = writer.encoder.tokenizer.decode(&prompt);
        assert!(told.contains("First words.") && told.contains("last words?"));
    }

    #[test]
    fn long_replies_lose_their_beginning() {
        let writer = writer(SampleSettings::default());
        let most = writer.encoder.longest_prompt / REPLY_SHARE;
        let told = |reply: &str| {
            let result =
                RoundResult { agent: "a1", role: "Solver", status: AgentStatus::Done, reply: Some(reply), sure: None };
            let brief = WriteContext { round: 2, results: vec![result], ..writer.encoder.first("A task?", 0) };
            let prompt = writer.encoder.prompt(&brief).unwrap();
            assert!(prompt.len() <= writer.encoder.longest_prompt, "{}", prompt.len());
            writer.encoder.tokenizer.decode(&prompt)
        };
        let end = "Answer: 42";
        let exact = format!("{}{end}", "x".repeat(most - end.len()));
        assert!(told(&exact).contains(&format!("> {exact}\n")));
        let long = told(&format!("First words. {exact}"));
        assert!(long.contains(&format!("> … {exact}\n")));
        assert!(long.contains("A task?") && !long.contains("First words."));
    }
}
