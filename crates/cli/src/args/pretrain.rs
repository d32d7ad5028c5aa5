//! The arguments of `lemon pretrain`.

use super::DeviceName;
use clap::{Args, Subcommand, ValueEnum};
use lemon_sft::pretrain::Size;
use lemon_task::SetName;
use std::path::PathBuf;

/// `lemon pretrain`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct PretrainArgs {
    #[command(subcommand)]
    pub command: Option<PretrainCommand>,
    /// The size: 0.7, 3 or 12 million parameters
    #[arg(long, required = true, value_name = "SIZE")]
    pub size: Option<SizeName>,
    /// Where the run and its best model go; a run that was interrupted there continues
    #[arg(long, required = true, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The folder of task sets: learn from the training problems of GSM8K, MAWPS and ASDiv too, and from nothing that is
    /// like a test question [default: problems of our own only]
    #[arg(long, env = "LEMON_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Tokens to learn from, as 800k or 100M
    #[arg(long, default_value = "100M", value_name = "N", value_parser = count)]
    pub tokens: u64,
    /// Lessons in a step
    #[arg(long, default_value_t = 512, value_name = "N")]
    pub batch: usize,
    /// The highest learning rate [default: by size]
    #[arg(long, value_name = "X")]
    pub learning_rate: Option<f64>,
    /// The seed of every random choice
    #[arg(long, env = "LEMON_SEED", default_value_t = 0, value_name = "N")]
    pub seed: u64,
    /// Where it runs
    #[arg(long, default_value = "auto", value_name = "WHERE")]
    pub device: DeviceName,
    /// Learn to check and choose from what these models really answer, to problems they have not learned from
    #[arg(long, value_name = "DIR", value_delimiter = ',')]
    pub peers: Vec<PathBuf>,
    /// Problems that the peers answer
    #[arg(long, default_value_t = 8_000, value_name = "N")]
    pub peer_problems: usize,
    /// The model to begin with [default: a new one]
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,
    /// How weights are moved
    #[arg(long, default_value = "muon", value_name = "HOW")]
    pub optimiser: OptimiserName,
    /// Steps between two held-out evaluations, on problems of situations it has not learned from
    #[arg(long, default_value_t = 200, value_name = "N")]
    pub look_every: u64,
    /// Problems of a held-out evaluation
    #[arg(long, default_value_t = 512, value_name = "N")]
    pub look_problems: usize,
    /// Held-out evaluations without an improvement after which it stops; 0: never
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub patience: u64,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Say nothing on standard error but errors
    #[arg(long, short)]
    pub quiet: bool,
}

/// What else can be done with such models.
#[derive(Debug, Subcommand)]
pub enum PretrainCommand {
    /// Ask models real test questions: solving, checking each other, choosing among what all said
    Score(PretrainScoreArgs),
    /// Calibrate a model's confidence in its solutions, on problems with known answers
    Calibrate(CalibrateArgs),
}

/// `lemon pretrain calibrate`
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// Its folder; what was found is written into its lemon.json
    #[arg(long, required = true, value_name = "DIR")]
    pub model: PathBuf,
    /// The folder of task sets: half of the problems are published ones [default: problems of our own only]
    #[arg(long, env = "LEMON_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Problems, of situations it has not learned from
    #[arg(long, default_value_t = 3_000, value_name = "N")]
    pub problems: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `lemon pretrain score`
#[derive(Debug, Args)]
pub struct PretrainScoreArgs {
    /// Their folders
    #[arg(long, required = true, value_name = "DIR", value_delimiter = ',')]
    pub models: Vec<PathBuf>,
    /// The folder of task sets [default: the sample that ships with this program]
    #[arg(long, env = "LEMON_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The task sets
    #[arg(long, default_value = "multiarith,svamp", value_name = "NAME", value_delimiter = ',')]
    pub sets: Vec<SetName>,
    /// Questions of each at most
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Where they run
    #[arg(long, default_value = "auto", value_name = "WHERE")]
    pub device: DeviceName,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A worker's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SizeName {
    /// 0.7 M parameters
    Small,
    /// 3 M
    Medium,
    /// 12 M
    Large,
}

impl From<SizeName> for Size {
    fn from(name: SizeName) -> Self {
        match name {
            SizeName::Small => Size::Small,
            SizeName::Medium => Size::Medium,
            SizeName::Large => Size::Large,
        }
    }
}

/// How weights are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OptimiserName {
    /// Adam with decoupled weight decay
    Adamw,
    /// Orthogonalised momentum for matrices inside, the other for the rest
    Muon,
}

/// A number, in thousands or millions where it ends in `k` or `M`.
fn count(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'K']).map(|digits| (digits, 1_000)) {
        Some(thousands) => thousands,
        None => text.strip_suffix(['m', 'M']).map_or((text, 1), |digits| (digits, 1_000_000)),
    };
    let number: u64 = digits.parse().map_err(|_| "it is not a number like 5000, 800k or 100M".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "it is too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_units() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(count(text).ok(), expected, "{text}");
        check("5000", Some(5_000));
        check("800k", Some(800_000));
        check("100M", Some(100_000_000));
        check("1.5M", None);
        check("M", None);
        check("-1", None);
        check("99999999999999999M", None);
    }
}
