//! The encoder of a table: from a round to a prompt, and from a text back to choices.

use super::FieldStart;
use super::layout::{BASES, Choice, Layout, Setting};
use super::scene::{Scene, Skills, seen, stage};
use super::write::{Chosen, write};
use crate::trainable::{Encoded, PromptEncoder};
use lemon_exec::orchestrator::WriteContext;
use lemon_model::{PolicyError, SampleRequest};
use lemon_spec::{Agent, AnswerRule, Language, Next, Share, Spec, validate_round};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Turns rounds into the prompts of a [`super::FieldTable`] of the same start and language, and texts into its tokens.
pub struct FieldPromptEncoder {
    layout: Layout,
    language: Arc<Language>,
    kinds: usize,
    /// Rounds that a run has at most: the last one cannot ask for another.
    rounds: u32,
    /// The features of each question. Computing them takes longer than all the rest.
    seen: Mutex<HashMap<String, (usize, Skills)>>,
}

impl FieldPromptEncoder {
    /// An encoder for runs of at most so many rounds.
    ///
    /// # Errors
    /// As [`super::FieldTable::new`].
    pub fn new(start: &FieldStart, language: Arc<Language>, rounds: u32) -> Result<Self, PolicyError> {
        let layout = Layout::new(start, &language)?;
        Ok(FieldPromptEncoder { layout, language, kinds: start.kinds, rounds, seen: Mutex::default() })
    }

    /// The table's kind of a question. With one kind all questions are the same. Else kind 0 is questions of knowledge, and the
    /// others are bands of estimated difficulty, with borders 0.8 apart around the mean: for two kinds none, for three 0, for four
    /// ±0.4, for five ±0.8 and 0, and so on.
    pub fn kind(&self, question: &str) -> usize {
        self.seen(question).0
    }

    fn seen(&self, question: &str) -> (usize, Skills) {
        let known = || self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = known().get(question) {
            return *seen;
        }
        let seen = seen(question, self.kinds);
        known().insert(question.to_owned(), seen);
        seen
    }
}

impl PromptEncoder for FieldPromptEncoder {
    fn request(&self, context: &WriteContext<'_>) -> Result<SampleRequest, PolicyError> {
        let (kind, skills) = self.seen(context.question);
        let setting = Setting { kind, stage: stage(&context.results), review: context.round < self.rounds };
        let earlier = context.results.iter().map(|result| result.agent.to_owned()).collect();
        Ok(SampleRequest { prompt: Scene { setting, skills, earlier }.prompt(), grammar: None, seed: context.seed })
    }

    /// A choice has one token, so that texts which begin alike have the same tokens there anyway.
    fn encode(&self, request: &SampleRequest, text: &str, _: &[u32]) -> Option<Encoded> {
        let scene = Scene::read(&request.prompt, self.kinds).ok()?;
        let plan = validate_round(text, &self.language, &scene.earlier).ok()?;
        let written = write(&self.layout, &scene, |choice| {
            let place = self.layout.place(choice);
            let value = self.value(choice, plan.spec(), &scene)?;
            let allowed = self.layout.allowed(place, scene.setting);
            (value < allowed).then_some(Chosen { value, logprob: 0.0, forced: allowed == 1 })
        })?;
        // What no choice holds (ids, roles, who answers) has to be as the table writes it.
        (written.text == text).then_some(Encoded { tokens: written.tokens, ends: written.ends })
    }
}

impl FieldPromptEncoder {
    /// The value of a choice in a specification. `None`: it has none that the table knows.
    fn value(&self, choice: Choice, spec: &Spec, scene: &Scene) -> Option<usize> {
        let agent = |slot: usize| spec.agents.get(slot);
        match choice {
            Choice::Spawn(slot) => Some(usize::from(agent(slot).is_none())),
            Choice::Base(slot) => position(&BASES, &agent(slot)?.base.as_str()),
            Choice::Duty(slot) => {
                let duties = [0, 1, 2].map(|choice| scene.skills.duty(choice));
                position(&duties, &agent(slot)?.duty)
            }
            Choice::Level(slot) => position(&self.language.capacities, &agent(slot)?.capacity),
            Choice::After(slot) => self.list(agent(slot)?, slot, spec),
            Choice::Share(slot) => position(Share::ALL, &agent(slot)?.share),
            Choice::By => position(AnswerRule::WITHOUT_CODE, &spec.answer.by),
            Choice::Next => position(Next::ALL, &spec.next),
        }
    }

    /// Which agents of this round it reads, and whether any of an earlier one.
    fn list(&self, agent: &Agent, slot: usize, spec: &Spec) -> Option<usize> {
        let own = |id: &String| spec.agents.iter().take(slot).position(|agent| agent.id == *id);
        // There are fewer slots than bits.
        let set = agent.after.iter().filter_map(own).fold(0u32, |set, parent| set | 1 << parent);
        let sets = self.layout.sets(slot);
        let at = position(sets, &set)?;
        Some(if agent.after.iter().all(|id| own(id).is_some()) { at } else { sets.len() + at })
    }
}

fn position<T: PartialEq>(values: &[T], value: &T) -> Option<usize> {
    values.iter().position(|known| known == value)
}
