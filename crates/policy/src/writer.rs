//! A policy as an orchestrator.

use crate::encoder::LanguagePromptEncoder;
use crate::head::TeamHead;
use async_trait::async_trait;
use lemon_exec::orchestrator::{Draft, Orchestrator, OrchestratorError, WriteContext, plain_team};
use lemon_model::{Policy, PolicyError, Sample, SampleRequest, SampleSettings, Sequence};
use lemon_spec::{render, validate_round};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// An orchestrator that writes teams with a policy: cheap to clone.
#[derive(Clone)]
pub struct Writer {
    policy: Arc<Mutex<Box<dyn Policy>>>,
    encoder: LanguagePromptEncoder,
    settings: SampleSettings,
    /// The policy's name in traces.
    name: String,
    /// First rounds that were written in one batch, by question.
    ahead: Arc<Mutex<HashMap<String, Team>>>,
    /// A first round with less confidence is replaced by one plain call.
    least_confidence: Option<f32>,
    /// The names of the capacities where its teams run, weakest first, if they are not those it was trained with.
    levels: Option<Vec<String>>,
    /// Chooses among several teams for each task.
    chooser: Option<Chooser>,
}

/// A head that chooses among teams.
#[derive(Clone)]
struct Chooser {
    head: Arc<TeamHead>,
    /// What 1,000 tokens are worth, in rewards.
    price: f64,
    /// Teams that are drawn beside the likeliest.
    drawn: usize,
}

/// A team, and how sure the policy was of it.
#[derive(Debug, Clone)]
struct Team {
    text: String,
    /// How sure, as [`Writer::confidences`] says; measured only where something depends on it.
    confidence: Option<f32>,
}

/// Below this confidence a team of the bundled orchestrator is replaced by one plain call: its tasks are unlike those it was
/// trained on.
pub const LEAST_CONFIDENCE: f32 = 0.97;

/// Tokens that a team may have.
pub const MOST_TOKENS: usize = 1_024;

impl Writer {
    /// A writer that samples with these settings.
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
            chooser: None,
        }
    }

    /// Writes several teams for each round, the likeliest and so many that are drawn, and takes the one that a head expects the
    /// highest reward of under a price of 1,000 tokens. One head serves every price.
    #[must_use]
    pub fn choosing(self, head: Arc<TeamHead>, price: f64, drawn: usize) -> Self {
        Writer { chooser: Some(Chooser { head, price, drawn }), ..self }
    }

    /// Replaces every first round with less confidence than this, from 0 to 1, by one plain call.
    #[must_use]
    pub fn or_plain_below(self, least_confidence: f32) -> Self {
        Writer { least_confidence: Some(least_confidence), ..self }
    }

    /// Renames capacities to those where the teams run: a model only writes the names it was trained with. Names are mapped by rank.
    #[must_use]
    pub fn for_levels(mut self, levels: &[String]) -> Self {
        self.levels = (levels != self.encoder.language().capacities).then(|| levels.to_vec());
        self
    }

    /// The encoder of its prompts.
    pub fn encoder(&self) -> &LanguagePromptEncoder {
        &self.encoder
    }

    /// The team with the capacity names of the place where it runs.
    fn renamed(&self, text: String, earlier: &[String]) -> String {
        let Some(levels) = &self.levels else { return text };
        let known = &self.encoder.language().capacities;
        let Ok(plan) = validate_round(&text, self.encoder.language(), earlier) else { return text };
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

    /// Writes the first rounds of many tasks in one batch. Does nothing at a temperature above 0, where every seed gives
    /// another team, nor where a head chooses.
    ///
    /// # Errors
    /// The policy failed.
    pub fn write_ahead(&self, questions: &[&str]) -> Result<(), PolicyError> {
        if self.settings.temperature > 0.0 || self.chooser.is_some() {
            return Ok(());
        }
        let requests = questions.iter().map(|question| self.encoder.request(&self.encoder.first(question, 0), true));
        let teams = self.teams(&requests.collect::<Result<Vec<_>, _>>()?)?;
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.extend(questions.iter().map(|it| (*it).to_owned()).zip(teams));
        Ok(())
    }

    /// Writes teams, with the confidence of each if the writer has a threshold.
    fn teams(&self, requests: &[SampleRequest]) -> Result<Vec<Team>, PolicyError> {
        let samples = self.sample(requests)?;
        let confidences = match self.least_confidence {
            Some(_) => self.confidences(requests, &samples)?.into_iter().map(Some).collect(),
            None => vec![None; samples.len()],
        };
        let team = |(sample, confidence): (Sample, Option<f32>)| Team { text: sample.text, confidence };
        Ok(samples.into_iter().zip(confidences).map(team).collect())
    }

    /// The confidence in teams that the policy wrote for these requests: 1 minus the probability of a neutral team (one agent without a
    /// role or duty), where it wrote another team. The training data has a neutral team for every task without a better one.
    ///
    /// # Errors
    /// The policy failed.
    pub fn confidences(&self, requests: &[SampleRequest], samples: &[Sample]) -> Result<Vec<f32>, PolicyError> {
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

    /// Teams of one neutral agent of the strongest capacity, as in the training data. None for a base role that the language lacks.
    fn neutral_teams(&self) -> Vec<String> {
        let team = |base: &str| {
            let capacity = self.encoder.language().capacities.last()?;
            let text = format!("agents:\n  - {{id: a1, base: {base}, capacity: {capacity}}}\n");
            // It is valid but for a base role that the language lacks.
            let plan = validate_round(&text, self.encoder.language(), &[]).ok()?;
            Some(render(plan.spec()).text)
        };
        ["solver", "programmer"].into_iter().filter_map(team).collect()
    }

    /// Writes teams for requests that [`LanguagePromptEncoder::request`] made.
    ///
    /// # Errors
    /// The policy failed.
    pub fn sample(&self, requests: &[SampleRequest]) -> Result<Vec<Sample>, PolicyError> {
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
        let chosen = match &self.chooser {
            None => None,
            Some(chooser) => {
                Some((chooser.clone(), chooser.head.prompt(context).map_err(|error| failed(error.to_string()))?))
            }
        };
        let write = move || match chosen {
            None => writer.teams(&[request]),
            Some((chooser, prompt)) => writer.best(&chooser, &prompt, request).map(|team| vec![team]),
        };
        let teams = tokio::task::spawn_blocking(write).await;
        let teams = teams.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))?;
        teams.into_iter().next().ok_or_else(|| failed("expected one team, got none".to_owned()))
    }

    /// Of the likeliest team and those that are drawn, the one that is worth most.
    fn best(&self, chooser: &Chooser, prompt: &[u32], request: SampleRequest) -> Result<Team, PolicyError> {
        let likeliest = self.teams(std::slice::from_ref(&request))?;
        let draw = |number: usize| {
            let seed = lemon_num::mixed_seed(request.seed, &["candidate", &number.to_string()]);
            SampleRequest { seed, ..request.clone() }
        };
        let requests: Vec<SampleRequest> = (0..chooser.drawn).map(draw).collect();
        let settings = SampleSettings { temperature: 1.0, ..self.settings };
        let drawn = self.policy.lock().unwrap_or_else(PoisonError::into_inner).sample(&requests, &settings)?;
        let mut teams = likeliest;
        for sample in drawn {
            if teams.iter().all(|team| team.text != sample.text) {
                teams.push(Team { text: sample.text, confidence: None });
            }
        }
        let texts: Vec<String> = teams.iter().map(|team| team.text.clone()).collect();
        let (best, _) = chooser.head.choose(prompt, &texts, chooser.price)?.unwrap_or_default();
        teams.into_iter().nth(best).ok_or_else(|| PolicyError::Request("expected a team, got none".to_owned()))
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

    fn fallback(&self, context: &WriteContext<'_>) -> Option<String> {
        let capacity = context.language.capacities.last()?;
        (context.round == 1).then(|| format!("agents:\n  - {{id: a1, base: solver, capacity: {capacity}}}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_model::{Example, StepReport, StepSettings, TablePolicy, Tokenizer};
    use lemon_spec::{Language, Shape, validate};

    /// A writer with an untrained policy.
    fn writer(settings: SampleSettings) -> Writer {
        let tokenizer = Tokenizer::train(std::iter::empty(), 257, &["<|end|>"]).unwrap();
        let shape = Shape { agents: 4, role_chars: 6, duty_chars: 8, ..Shape::default() };
        let encoder = LanguagePromptEncoder::new(tokenizer.clone(), Arc::new(Language::default()), shape, 4_096);
        Writer::new(Box::new(TablePolicy::new(tokenizer, 2, 1)), encoder, settings, "table")
    }

    struct FailingPolicy;

    impl Policy for FailingPolicy {
        fn sample(&self, _: &[SampleRequest], _: &SampleSettings) -> Result<Vec<Sample>, PolicyError> {
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
                let context = WriteContext { language: &language, ..writer.encoder.first("A task.", seed) };
                let text = text(draft(&writer, &context));
                let plan = validate(&text, &language).unwrap_or_else(|_| panic!("{text}"));
                // By rank: what was the weakest is the weakest, what was the strongest the strongest.
                let own = self::text(draft(&self::writer(SampleSettings::default()), &context));
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
            let context = ahead.encoder.first(question, 0);
            assert_eq!(text(draft(&ahead, &context)), text(draft(&later, &context)));
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
        let context = unsure.encoder.first("One?", 0);
        match draft(&unsure, &context) {
            Some(Draft::Guarded(text)) => assert_eq!(Some(text), plain_team(context.language)),
            _ => panic!("the team was written all the same"),
        }
        assert_eq!(text(draft(&sure, &context)), text(draft(&writer(settings), &context)));
        // The same where it was written ahead.
        unsure.write_ahead(&["One?"]).unwrap();
        assert!(matches!(draft(&unsure, &context), Some(Draft::Guarded(_))));
        let requests = [unsure.encoder.request(&context, true).unwrap()];
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
}
