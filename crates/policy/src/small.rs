//! A new small orchestrator: its vocabulary, its shape and its chat template.

use lemon_model::{ModelConfig, PolicyError, Tokenizer};
use lemon_task::{SetName, compose};

/// The prompt holds the task and no instructions: the model is trained to write teams.
const TEMPLATE: &str = "{% for message in messages %}{% if message['role'] == 'user' %}<|task|>{{ message['content'] }}\
                        {% endif %}{% endfor %}<|team|>";
const SPECIALS: [&str; 3] = ["<|end|>", "<|task|>", "<|team|>"];
/// Tasks of each set that the vocabulary is made from.
const TASKS: usize = 600;

/// A vocabulary trained on composed tasks and these specifications, and a model shape for it.
///
/// # Errors
/// A vocabulary too small for all bytes.
pub fn small_model(
    specs: Vec<String>,
    vocabulary: usize,
    hidden: usize,
    layers: usize,
) -> Result<(ModelConfig, Tokenizer), PolicyError> {
    let tasks = SetName::PUBLIC.into_iter().flat_map(|set| compose(set, TASKS, 0));
    let texts: Vec<String> = tasks.map(|item| item.task.question).chain(specs).collect();
    let tokenizer = Tokenizer::train(texts.into_iter(), vocabulary, &SPECIALS)?.with_template(TEMPLATE)?;
    let config = ModelConfig::small(tokenizer.vocabulary().next_multiple_of(64), hidden, layers, tokenizer.end());
    Ok((config, tokenizer))
}
