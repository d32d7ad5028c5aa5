//! Every text that a table can write, with its probability: the truth that estimators are compared with.

use super::layout::Choice;
use super::scene::Scene;
use super::write::{Chosen, write};
use super::{FieldTable, STAGES};
use lemon_model::{PolicyError, Sample, SampleRequest, Sequence};
use lemon_num::Random;

/// A text that a table can write.
#[derive(Debug, Clone)]
pub struct Text {
    /// The text as the table would sample it.
    pub sample: Sample,
    /// Its probability, at temperature 1.
    pub probability: f64,
}

impl FieldTable {
    /// Every text that the table can write in answer to a request. There are as many as the choices have combinations: a table
    /// of more than a few values has too many to list.
    ///
    /// # Errors
    /// The request is not one of this table's encoder, or there are more than `most` texts.
    pub fn texts(&self, request: &SampleRequest, most: usize) -> Result<Vec<Text>, PolicyError> {
        let scene = Scene::read(&request.prompt, self.kinds)?;
        let mut texts = Vec::new();
        // The values of the choices that have several, and how many each has.
        let mut path: Vec<(usize, usize)> = Vec::new();
        loop {
            let mut at = 0;
            let written = write(&self.layout, &scene, |choice: Choice| {
                let allowed = self.layout.allowed(self.layout.place(choice), scene.setting);
                if allowed == 1 {
                    return Some(Chosen { value: 0, logprob: 0.0, forced: true });
                }
                if at == path.len() {
                    path.push((0, allowed));
                }
                let value = path.get(at)?.0;
                at += 1;
                Some(Chosen { value, logprob: 0.0, forced: false })
            });
            let mut sample = written.ok_or_else(|| PolicyError::Request("no text can be written".to_owned()))?;
            let (prompt, tokens) = (request.prompt.clone(), sample.tokens.clone());
            let scores = self.scores(&Sequence { prompt, tokens, grammar: None }, 1.0)?;
            let probability = scores.iter().sum::<f64>().exp();
            sample.logprobs = scores.into_iter().map(|score| score as f32).collect();
            texts.push(Text { sample, probability });
            if texts.len() > most {
                return Err(PolicyError::Request(format!("expected at most {most} texts, found more")));
            }
            // The next path: the last choice that has another value takes it, and all after it are made anew.
            while path.last().is_some_and(|(value, allowed)| value + 1 == *allowed) {
                path.pop();
            }
            match path.last_mut() {
                None => return Ok(texts),
                Some((value, _)) => *value += 1,
            }
        }
    }

    /// Draws all logits from a normal distribution of this spread: a policy without structure, for tests of estimators.
    pub fn randomise(&mut self, seed: u64, spread: f32) {
        self.logits = Random::new(seed).normals(self.logits.len(), spread);
    }

    /// Adds to every logit, in the order of [`FieldTable::gradient`].
    pub fn move_by(&mut self, steps: &[f64]) {
        self.logits.iter_mut().zip(steps).for_each(|(logit, step)| *logit = (f64::from(*logit) + step) as f32);
    }

    /// The field whose choice each parameter belongs to, by name: `a2 capacity`, `answer by`, …
    pub fn fields_of_parameters(&self) -> Vec<String> {
        let width = self.layout.width();
        let names: Vec<String> = self
            .layout
            .places()
            .iter()
            .flat_map(|place| std::iter::repeat_n(self.layout.name(place.choice), place.values))
            .collect();
        let rows = self.kinds * STAGES + if self.conditioned { width } else { 0 };
        std::iter::repeat_n(names, rows).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{FieldPromptEncoder, FieldStart};
    use crate::trainable::PromptEncoder;
    use lemon_exec::orchestrator::WriteContext;
    use lemon_model::{Policy, SampleSettings};
    use lemon_spec::Language;
    use std::collections::HashSet;
    use std::sync::Arc;

    fn small() -> (FieldTable, SampleRequest) {
        let start = FieldStart { slots: 2, kinds: 1, bases: 1, duties: 1, conditioned: true, ..FieldStart::default() };
        let language = Arc::new(Language::default());
        let mut table = FieldTable::new(&start, &language).unwrap();
        table.randomise(7, 1.0);
        let encoder = FieldPromptEncoder::new(&start, language.clone(), 2).unwrap();
        let context = WriteContext {
            question: "How much are 3 apples at 2 dollars each?",
            round: 1,
            results: Vec::new(),
            language: &language,
            form: Default::default(),
            tokens_left: None,
            seed: 1,
        };
        (table, encoder.request(&context).unwrap())
    }

    #[test]
    fn all_texts_are_listed_once_and_their_probabilities_add_up_to_one() {
        let (table, request) = small();
        let texts = table.texts(&request, 1_000).unwrap();
        // 6 first agents, with none or one of 12 seconds, 3 rules, 2 ways to go on.
        assert_eq!(texts.len(), 6 * 13 * 3 * 2);
        let different: HashSet<&str> = texts.iter().map(|text| text.sample.text.as_str()).collect();
        assert_eq!(different.len(), texts.len());
        let sum: f64 = texts.iter().map(|text| text.probability).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        assert!(table.texts(&request, 100).unwrap_err().to_string().contains("at most 100"));
        assert_eq!(table.fields_of_parameters().len(), table.logits.len());
    }

    /// A text that is continued is a draw of the policy given its beginning.
    #[test]
    fn a_text_goes_on_from_its_first_tokens_as_the_policy_would() {
        let (table, request) = small();
        let texts = table.texts(&request, 1_000).unwrap();
        let likeliest = texts.iter().max_by(|a, b| a.probability.total_cmp(&b.probability)).unwrap();
        let given: Vec<u32> = likeliest.sample.tokens[..6].to_vec();
        let begun: Vec<_> = (0..4_000).map(|seed| (SampleRequest { seed, ..request.clone() }, given.clone())).collect();
        let settings = SampleSettings { temperature: 1.0, ..SampleSettings::default() };
        let drawn = table.resume(&begun, &settings).unwrap();
        assert!(drawn.iter().all(|sample| sample.tokens.starts_with(&given)));
        let matching = || texts.iter().filter(|text| text.sample.tokens.starts_with(&given));
        let mass: f64 = matching().map(|text| text.probability).sum();
        for text in matching().filter(|text| text.probability > 0.05 * mass) {
            let found = drawn.iter().filter(|sample| sample.text == text.sample.text).count() as f64 / 4_000.0;
            let expected = text.probability / mass;
            assert!(
                (found - expected).abs() < 4.0 * (expected * (1.0 - expected) / 4_000.0).sqrt(),
                "{found} {expected}"
            );
        }
        assert!(table.resume(&[(request, vec![given[1], given[1]])], &settings).is_err());
    }
}
