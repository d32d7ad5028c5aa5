//! Replies of a worker to many prompts at once, without a team.

use lemon_model::{LanguagePolicy, Policy, PolicyError, SampleRequest, SampleSettings, Sequence};

/// Prompts in one batch: no more than a GPU takes at once.
const AT_ONCE: usize = 512;
/// Tokens a reply may have: five steps, and some.
pub(super) const MOST_TOKENS: usize = 128;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct WorkerReply {
    pub text: String,
    /// Its tokens, the one that ends it included. None: the prompt was too long to be read.
    pub tokens: Vec<u32>,
}

/// Answers each prompt, at a temperature; prompt number *n* draws from seed + *n*. A prompt that the model cannot read gets an
/// empty reply.
///
/// # Errors
/// The device fails.
pub fn answer(
    policy: &LanguagePolicy,
    prompts: &[String],
    temperature: f32,
    seed: u64,
) -> Result<Vec<WorkerReply>, PolicyError> {
    let mut replies = vec![WorkerReply::default(); prompts.len()];
    let settings = SampleSettings { temperature, top_p: 1.0, most_tokens: MOST_TOKENS };
    let readable = readable(policy, prompts);
    for some in readable.chunks(AT_ONCE) {
        let request = |(number, prompt): &(usize, Vec<u32>)| {
            let seed = seed.wrapping_add(*number as u64);
            SampleRequest { prompt: prompt.clone(), grammar: None, seed }
        };
        let requests: Vec<SampleRequest> = some.iter().map(request).collect();
        for ((number, _), sample) in some.iter().zip(policy.sample(&requests, &settings)?) {
            replies[*number] = WorkerReply { text: sample.text, tokens: sample.tokens }; // A number of `prompts`.
        }
    }
    Ok(replies)
}

/// How sure the model was of each reply to each prompt: the mean log-probability of its tokens.
///
/// # Errors
/// The device fails.
pub fn confidence(
    policy: &LanguagePolicy,
    prompts: &[String],
    replies: &[WorkerReply],
) -> Result<Vec<f64>, PolicyError> {
    let mut sure = vec![f64::NEG_INFINITY; prompts.len()];
    let readable = readable(policy, prompts);
    let known = |(number, prompt): &(usize, Vec<u32>)| {
        let tokens = replies.get(*number)?.tokens.clone();
        Some(Sequence { prompt: prompt.clone(), tokens, grammar: None }).filter(|it| !it.tokens.is_empty())
    };
    let (numbers, sequences): (Vec<usize>, Vec<Sequence>) =
        readable.iter().filter_map(|it| Some((it.0, known(it)?))).unzip();
    for (number, scores) in numbers.into_iter().zip(policy.score(&sequences, 1.0)?) {
        // A number of `prompts`; a reply has tokens.
        sure[number] = scores.iter().map(|score| f64::from(*score)).sum::<f64>() / scores.len() as f64;
    }
    Ok(sure)
}

/// The prompts that leave room for a reply, as tokens, with their numbers.
fn readable(policy: &LanguagePolicy, prompts: &[String]) -> Vec<(usize, Vec<u32>)> {
    let room = policy.config().positions.saturating_sub(MOST_TOKENS);
    let tokens = prompts.iter().map(|prompt| policy.tokenizer().encode_plain(prompt));
    tokens.enumerate().filter(|(_, tokens)| !tokens.is_empty() && tokens.len() <= room).collect()
}
