//! The table of estimators: bias and variance of each against the exact gradient.

use lemon_train::estimators::{Compared, Figures, LabReport, LabSettings};
use std::fmt::Write;

/// The document. `command` is what makes it.
pub fn table(compared: &LabReport, settings: &LabSettings, command: &str) -> String {
    let mut out = String::from("# Which estimators follow the gradient?\n\n");
    // Writing to a string cannot fail, here and below.
    let _ = write!(
        out,
        "Made by `{command}`.\n\nThe policy is an autoregressive table that can write {} texts; the expected reward is {:.4}. The\n\
         exact gradient is a sum over all texts. Each estimator sees {} groups of {} texts, through the code that training\n\
         uses. Rewards are made up: random effects of decisions and of pairs of decisions, and noise of deviation {} for each\n\
         call. Texts of a group and their counterfactuals share the noise.\n\n",
        compared.texts, compared.reward, settings.groups, settings.group, settings.noise
    );
    out.push_str(NOTES);
    out.push_str("\n## All parameters\n\n| estimator | what it does | scale | bias, % | z | noise | runs |\n|---|---|---|---|---|---|---|\n");
    for Compared { name, about, runs, all, .. } in &compared.estimators {
        let _ = writeln!(
            out,
            "| `{name}` | {about} | {:.2} | {} | {:.1} | {:.0} | {runs:.0} |",
            all.scale,
            bias(all),
            all.z,
            all.noise
        );
    }
    let figures: [NamedFigure; 3] = [
        ("Scale by field", |it| format!("{:.2}", it.scale)),
        ("Bias by field, %", bias),
        ("Noise by field", |it| format!("{:.0}", it.noise)),
    ];
    for (title, value) in figures {
        let names: Vec<&str> = compared.fields.iter().map(|(field, _)| field.as_str()).collect();
        let _ =
            write!(out, "\n## {title}\n\n| estimator | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
        for Compared { name, fields, .. } in &compared.estimators {
            let cells: Vec<String> = fields.iter().map(|field| value(&field.figures)).collect();
            let _ = writeln!(out, "| `{name}` | {} |", cells.join(" | "));
        }
    }
    out
}

/// A table by field: its title, and what its cells show.
type NamedFigure = (&'static str, fn(&Figures) -> String);

/// What the columns mean.
const NOTES: &str = "\
- **Scale**: the exact gradient times this is nearest to the estimator's mean. A common scale is a learning rate; scales
  that differ by field are a bias of the whole.
- **Bias**: the norm of what is left of the mean, over the norm of the scaled exact gradient. `–`: not told apart from
  nothing (the squared bias is below four of its standard errors, or the bias below 5 %).
- **z**: the squared bias over its standard error.
- **Noise**: the variance of the gradient of one group, over the squared norm of the scaled exact gradient. So many groups
  are needed for a signal as large as the noise.
- **Runs**: counterfactual runs of a group, beside its four rollouts.
- **All is measured** here, but for `half-measured`. Training measures what the reply cache answers, which may depend on the
  values; edits of references, duties and roles, whose other values are not all measured; and weights by variance. What
  that adds in bias to `full` is not in this table.
";

fn bias(figures: &Figures) -> String {
    if figures.z > 4.0 && figures.bias > 0.05 { format!("{:.0}", 100.0 * figures.bias) } else { "–".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lemon_train::estimators::compare;

    #[test]
    fn the_table_has_a_row_for_each_estimator_and_marks_biases() {
        let settings = LabSettings { groups: 40, ..LabSettings::default() };
        let compared = compare(&settings, &["plain", "grpo"]).unwrap();
        let text = table(&compared, &settings, "lemon ablate estimators");
        assert_eq!(text.matches("| `grpo` |").count(), 4, "{text}");
        assert!(text.contains("468 texts") && text.contains("a2 spawn") && text.contains("answer by"), "{text}");
        let biased = Figures { scale: 1.0, bias: 0.5, z: 9.0, noise: 1.0 };
        assert_eq!((bias(&biased), bias(&Figures { z: 3.0, ..biased })), ("50".to_owned(), "–".to_owned()));
    }
}
