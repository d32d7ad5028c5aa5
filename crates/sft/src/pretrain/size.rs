//! The shapes of small workers, and the vocabulary they share.

use super::lesson_stream::Sources;
use lemon_model::{ModelConfig, PolicyError, Tokenizer};
use lemon_problems::{Lessons, Mix, Noise, ProblemPart};
use serde::{Deserialize, Serialize};

/// A worker's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// 0.7 M parameters.
    Small,
    /// 3 M.
    Medium,
    /// 12 M.
    Large,
}

/// Tokens a worker reads and writes in all.
pub(super) const CONTEXT: usize = 512;
const VOCABULARY: usize = 2_560;
const HEAD: usize = 32;
/// What a user says, as it is: a prompt is the same whether it comes as a message or as a text.
const TEMPLATE: &str = "{% for message in messages %}{% if message['role'] == 'user' %}{{ message['content'] }}\
                        {% endif %}{% endfor %}";
/// The seed of the texts the vocabulary is made from; with another, no two sizes would understand each other.
const SEED: u64 = 1;
/// Lessons of each part that it is made from.
const LESSONS: [(ProblemPart, usize); 2] = [(ProblemPart::Train, 16_000), (ProblemPart::Review, 4_000)];

impl Size {
    /// Its shape, for a vocabulary.
    pub fn config(self, tokenizer: &Tokenizer) -> ModelConfig {
        let (hidden, layers) = match self {
            Size::Small => (96, 4),
            Size::Medium => (192, 6),
            Size::Large => (320, 9),
        };
        let small = ModelConfig::small(tokenizer.vocabulary().next_multiple_of(64), hidden, layers, tokenizer.end());
        let heads = hidden / HEAD;
        let kv_heads = if heads.is_multiple_of(2) { heads / 2 } else { 1 };
        ModelConfig { heads, kv_heads, head_dim: HEAD, positions: CONTEXT, ..small }
    }

    /// The learning rate that suits it: smaller models bear more.
    pub fn learning_rate(self) -> f64 {
        match self {
            Size::Small => 4e-3,
            Size::Medium => 2.5e-3,
            Size::Large => 1.5e-3,
        }
    }
}

/// The vocabulary of all sizes: byte pairs of lessons, published problems among them where there are any, every digit by itself.
///
/// # Errors
/// Training it failed, which these texts give no reason for.
pub fn vocabulary(sources: &Sources) -> Result<Tokenizer, PolicyError> {
    let of_part = |(part, count)| {
        let generator = sources.generator(SEED, part);
        Lessons::on(generator, SEED, Mix::default(), Noise::NONE).take(count).map(|it| it.prompt + &it.reply)
    };
    let texts: Vec<String> = LESSONS.into_iter().flat_map(of_part).collect();
    Tokenizer::train(texts.into_iter(), VOCABULARY, &["<|end|>"])?.with_template(TEMPLATE)
}
