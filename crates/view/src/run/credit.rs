//! What was measured of the run after its end, for its page: reward channels, and a bar for every part of the team.

use super::markup::escape;
use crate::credit::{Credit, Part};
use crate::text;
use std::fmt::Write;

/// The section's content; `None` if nothing was measured.
pub fn credit(credit: &Credit) -> Option<String> {
    if credit.is_empty() {
        return None;
    }
    let mut html = String::new();
    rewards(&mut html, credit);
    if !credit.parts.is_empty() {
        parts(&mut html, credit);
    }
    Some(html)
}

fn rewards(html: &mut String, credit: &Credit) {
    let right = credit.right.map(|right| ("answer", if right { "right" } else { "wrong" }.to_owned()));
    let channels = credit.rewards.iter().map(|(name, value)| (*name, text::reward(*value)));
    let rewards: Vec<(&str, String)> = right.into_iter().chain(channels).collect();
    if rewards.is_empty() {
        return;
    }
    html.push_str("<dl class=\"metrics rewards\">");
    for (name, value) in rewards {
        let _ = write!(html, "<div><dt>{}</dt><dd>{value}</dd></div>", escape(&name.replace('_', " ")));
    }
    html.push_str("</dl>\n");
}

fn parts(html: &mut String, credit: &Credit) {
    html.push_str(
        "<p class=\"hint\">Worth: points of success of the team as it is less those with the change, ± one standard error. \
         Green and red are more than two standard errors from zero; grey is not. Not measured is not zero.</p>\n\
         <div class=\"scroll\"><table class=\"sortable credit\">\n<thead><tr>",
    );
    for (name, class) in
        [("Part", ""), ("Of", ""), ("Family", ""), ("Worth", "n"), ("", ""), ("Pairs", "n"), ("Change", "")]
    {
        let _ = write!(html, "<th scope=\"col\" class=\"{class}\">");
        if !name.is_empty() {
            let _ = write!(html, "<button type=\"button\">{name}</button>");
        }
        html.push_str("</th>");
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    let most =
        credit.measured().filter_map(|part| part.worth.effect()).fold(0.0, |most: f64, worth| most.max(worth.abs()));
    for part in credit.measured().chain(credit.unmeasured()) {
        row(html, part, most);
    }
    html.push_str("</tbody></table></div>\n");
}

fn row(html: &mut String, part: &Part, most: f64) {
    // What was not measured has no place among the numbers: it comes before all of them, or after.
    let sorts_as = part.worth.effect().map_or("-Infinity".to_owned(), |effect| effect.to_string());
    let _ = writeln!(
        html,
        "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"n worth {}\" data-v=\"{sorts_as}\">{}</td><td>{}</td>\
         <td class=\"n\" data-v=\"{n}\">{n}</td><td>{}</td></tr>",
        escape(&part.unit.replace('_', " ")),
        escape(&text::line(part.target, 60)),
        part.family.map_or("–", |family| family.as_str()),
        part.worth.sign().class(),
        part.worth.told(),
        bar(part, most),
        escape(&text::line(part.edit.unwrap_or_default(), 100)),
        n = part.n,
    );
}

/// A bar from the middle: to the right what adds, to the left what takes; as long as the largest at most.
fn bar(part: &Part, most: f64) -> String {
    let Some(effect) = part.worth.effect() else { return String::new() };
    let width = if most > 0.0 { 50.0 * (effect.abs() / most).clamp(0.0, 1.0) } else { 0.0 };
    let left = if effect < 0.0 { 50.0 - width } else { 50.0 };
    let class = part.worth.sign().class();
    format!("<span class=\"balance\"><i class=\"{class}\" style=\"left:{left:.1}%;width:{width:.1}%\"></i></span>")
}
