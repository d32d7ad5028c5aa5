//! `lemon world`: fit the simulated workers, compare them with their record, search them for the best team.

mod teams;

use crate::args::WorldCommand;
use crate::fault::{Fault, read_file};
use crate::{print, print_json};
use lemon_world::{Check, Figure, Fitted, Preset, check, check_real, fit_real, fit_to_record};
use std::path::Path;

pub fn world(command: &WorldCommand) -> Result<u8, Fault> {
    match command {
        WorldCommand::Fit { data, world } => fit(data, (*world).into()),
        WorldCommand::Check { data, world, figures: file, json } => {
            let preset = Preset::from(*world);
            let fitted = file.as_deref().map_or_else(|| Ok(preset.fitted().clone()), figures)?;
            let check = match preset {
                Preset::Calibrated | Preset::Teams => check(&fitted, data),
                Preset::Real => check_real(&fitted, data),
            };
            let check = check.map_err(no_record)?;
            match json {
                true => print_json(&check)?,
                false => print(&table(&check))?,
            };
            Ok(u8::from(!check.holds()))
        }
        WorldCommand::Teams { .. } => teams::teams(command),
    }
}

fn fit(data: &Path, preset: Preset) -> Result<u8, Fault> {
    let fitted = match preset {
        Preset::Calibrated | Preset::Teams => fit_to_record(data),
        Preset::Real => fit_real(data),
    };
    let fitted = fitted.map_err(no_record)?;
    print(&toml::to_string(&fitted).map_err(Fault::new)?)
}

/// A file of figures of one's own.
fn figures(path: &Path) -> Result<Fitted, Fault> {
    Fitted::parse(&read_file(path)?).map_err(|error| Fault::new(format!("{}: {error}", path.display())))
}

fn no_record(error: lemon_world::outcomes::OutcomesError) -> Fault {
    Fault::new(error).hint("--data names a folder of task sets with the recorded outcomes in outcomes/")
}

/// A line for each figure; `!` marks those that are further apart than they may be, `~` those that miss their bound by no more
/// than two standard errors of the record.
fn table(check: &Check) -> String {
    let width = check.figures.iter().map(|figure| name(figure).chars().count()).max().unwrap_or(0);
    let mut text = format!("  {:<9}  {:<width$}  record   world   points  bound  cases\n", "set", "figure");
    for figure in &check.figures {
        let bound = figure.bound.map_or_else(|| "-".to_owned(), |bound| format!("{:.1}", 100.0 * bound));
        text += &format!(
            "{} {:<9}  {:<width$}  {:>6.1}  {:>6.1}  {:>+7.1}  {bound:>5}  {:>5}\n",
            match (figure.holds(), figure.is_compatible()) {
                (true, _) => ' ',
                (false, true) => '~',
                (false, false) => '!',
            },
            figure.set,
            name(figure),
            100.0 * figure.record,
            100.0 * figure.world,
            100.0 * (figure.world - figure.record),
            figure.cases,
        );
    }
    let apart = check.figures.iter().filter(|figure| !figure.holds()).count();
    let beyond = check.figures.iter().filter(|figure| !figure.is_compatible()).count();
    text + &match (apart, apart - beyond) {
        (0, _) => "every figure keeps within its bound\n".to_owned(),
        (_, 0) => format!("{apart} of {} figures do not keep within their bound\n", check.figures.len()),
        (_, within) => format!(
            "{apart} of {} figures do not keep within their bound, {within} of them (~) by no more than two standard errors \
             of the record\n",
            check.figures.len()
        ),
    }
}

fn name(figure: &Figure) -> String {
    figure.level.map_or_else(|| figure.what.clone(), |level| format!("{level}: {}", figure.what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_too_far_apart_are_marked() {
        let figure = |level, record, world, bound| Figure {
            set: "gsm8k",
            what: "accuracy".to_owned(),
            level,
            record,
            world,
            bound,
            cases: 660,
            error: None,
        };
        let mut check =
            Check { figures: vec![figure(Some("small"), 0.466, 0.47, Some(0.02)), figure(None, 0.5, 0.9, None)] };
        assert!(table(&check).ends_with("\nevery figure keeps within its bound\n"));
        check.figures.push(figure(Some("large"), 0.86, 0.812, Some(0.02)));
        insta::assert_snapshot!(table(&check), @r"
          set        figure           record   world   points  bound  cases
          gsm8k      small: accuracy    46.6    47.0     +0.4    2.0    660
          gsm8k      accuracy           50.0    90.0    +40.0      -    660
        ! gsm8k      large: accuracy    86.0    81.2     -4.8    2.0    660
        1 of 3 figures do not keep within their bound
        ");
    }
}
