//! `lemon pretrain calibrate`: finds out how likely a model's solutions are right.

use super::sources;
use crate::args::pretrain::CalibrateArgs;
use crate::fault::Fault;
use crate::{print_json, println};
use lemon_model::Tokenizer;
use lemon_sft::pretrain::HeldOutProblems;
use lemon_workers::{CARD, local};

pub fn calibrate(args: &CalibrateArgs) -> Result<u8, Fault> {
    let (sources, _) = sources(args.data.as_deref())?;
    let tokenizer = Tokenizer::load(&args.model).map_err(Fault::new)?;
    let exam = HeldOutProblems::new(&sources, args.problems, &tokenizer);
    let found = local::calibrate(&args.model, exam.problems()).map_err(Fault::new)?;
    if args.json {
        return print_json(&found);
    }
    println(&format!(
        "{}: of {} solutions {:.1} % are right; how far it is off, squared: {:.3} before, {:.3} now",
        args.model.join(CARD).display(),
        found.solutions,
        100.0 * found.right,
        found.brier_before,
        found.brier,
    ))
}
