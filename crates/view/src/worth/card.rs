//! A card: an agent, the answer, or an agent of an earlier round.

use super::markup::{escape, fit, translated};
use super::worth::{Effects, Sign, Worth, percent, tenths};
use crate::profile::Baseline;
use lemon_spec::edit::Change;
use lemon_spec::{AnswerRule, Next, Plan, PlannedAgent, Share};
use std::fmt::Write;

pub const WIDTH: f64 = 228.0;
const PAD: f64 = 12.0;
/// The heights of what stands on a card.
const HEAD: f64 = 29.0;
const ROLE: f64 = 17.0;
const HEADLINE: f64 = 19.0;
const SHARE: f64 = 17.0;
const ROW: f64 = 15.0;
const FOOT: f64 = 7.0;
/// The bar, of which the whole width is all tokens.
const BAR: f64 = 92.0;

/// What stands on a card, from top to bottom.
pub struct Card {
    class: &'static str,
    sign: Option<Sign>,
    name: String,
    aside: String,
    role: String,
    headline: Option<String>,
    /// Its part of the tokens.
    share: Option<f64>,
    /// Other decisions about it, and what they are worth.
    rows: Vec<(&'static str, Worth)>,
    tip: String,
}

impl Card {
    pub fn agent(agent: &PlannedAgent, baseline: &Baseline, effects: &Effects) -> Card {
        let id = || agent.id.clone();
        let worth = effects.worth(&Change::RemoveAgent { agent: id() });
        let base = &agent.base.name;
        let role = if agent.role == agent.base.title { base.clone() } else { format!("{base} · {}", agent.role) };
        let points = worth.points().map(|points| format!("{points} points"));
        let (own_role, duty) = (Change::ResetRole { agent: id() }, Change::ResetDuty { agent: id() });
        let other_share = match agent.share {
            Share::Reply => ("its answer only", Change::ShareAnswer { agent: id() }),
            Share::Answer => ("its whole reply", Change::ShareReply { agent: id() }),
        };
        let rows = [
            ("▼ one level lower", effects.gain(&Change::LowerCapacity { agent: id() })),
            ("▲ one level higher", effects.gain(&Change::RaiseCapacity { agent: id() })),
            ("role of its own", effects.get(&own_role).map(|_| effects.worth(&own_role))),
            ("duty of its own", effects.get(&duty).map(|_| effects.worth(&duty))),
            (other_share.0, effects.gain(&other_share.1)),
        ];
        Card {
            class: "agent",
            sign: Some(worth.sign()),
            name: id(),
            aside: agent.capacity.clone(),
            headline: Some(points.unwrap_or_else(|| "not measured".to_owned())),
            share: baseline.agents.get(&agent.id).and_then(|tokens| share(*tokens, baseline)),
            rows: known(rows),
            tip: tip(&format!("{}: {role}", agent.id), effects.advice_on(&agent.id)),
            role,
        }
    }

    pub fn answer(plan: &Plan, baseline: &Baseline, effects: &Effects) -> Card {
        let by = |rule| effects.gain(&Change::AnswerBy { rule });
        let rows = [
            ("by the last instead", by(AnswerRule::Last)),
            ("by a vote instead", by(AnswerRule::Vote)),
            ("by a judge instead", by(AnswerRule::Judge)),
            ("stop after this round", effects.gain(&Change::Stop)),
            ("review this round", effects.gain(&Change::Review)),
        ];
        let own = |id: &String| plan.agents().iter().any(|agent| agent.id == *id);
        // A judge is in no team's text, and is paid for its answer.
        let others: f64 = baseline.agents.iter().filter(|(id, _)| !own(id)).map(|(_, tokens)| tokens).sum();
        let role = match plan.next() {
            Next::Stop => "the run stops here",
            Next::Review => "the orchestrator reviews it",
        };
        Card {
            class: "answer",
            sign: None,
            name: "Answer".to_owned(),
            aside: match plan.answer_rule() {
                AnswerRule::Last => "by the last",
                AnswerRule::Vote => "by a vote",
                AnswerRule::Judge => "by a judge",
            }
            .to_owned(),
            role: role.to_owned(),
            headline: Some(format!("{} right", tenths(baseline.success))),
            share: share(others, baseline).filter(|share| *share > 0.0),
            rows: known(rows),
            tip: tip("The answer", effects.advice_on_answer()),
        }
    }

    pub fn earlier(id: &str) -> Card {
        Card {
            class: "ghost",
            sign: None,
            name: id.to_owned(),
            aside: "earlier round".to_owned(),
            role: String::new(),
            headline: None,
            share: None,
            rows: Vec::new(),
            tip: format!("{id} of an earlier round"),
        }
    }

    pub fn height(&self) -> f64 {
        let role = if self.role.is_empty() { 0.0 } else { ROLE };
        let headline = if self.headline.is_some() { HEADLINE } else { 0.0 };
        let share = if self.share.is_some() { SHARE } else { 0.0 };
        HEAD + role + headline + share + ROW * self.rows.len() as f64 + FOOT
    }

    /// What the card says, for those who do not see it. `None` for what is not of this team.
    pub fn words(&self) -> Option<String> {
        let headline = self.headline.as_ref()?;
        let share = self.share.map(|share| format!(", {} of tokens", percent(share))).unwrap_or_default();
        Some(format!("{}: {headline}{share}", self.name))
    }

    pub fn draw(&self, x: f64, y: f64) -> String {
        let right = WIDTH - PAD;
        let inner = WIDTH - 2.0 * PAD;
        let mut body = format!(
            "<title>{}</title><rect class=\"card\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"6\"/>\
             <text class=\"id\" x=\"{PAD}\" y=\"20\">{}</text>\
             <text class=\"meta\" x=\"{right}\" y=\"20\" text-anchor=\"end\">{}</text>",
            escape(&self.tip),
            WIDTH - 1.0,
            self.height() - 1.0,
            fit(&self.name, inner - 92.0, 13.6),
            fit(&self.aside, 84.0, 11.0),
        );
        let mut top = HEAD;
        if !self.role.is_empty() {
            let role = fit(&self.role, inner, 11.5);
            let _ = write!(body, "<text class=\"role\" x=\"{PAD}\" y=\"{}\">{role}</text>", top + 8.0);
            top += ROLE;
        }
        if let Some(headline) = &self.headline {
            let headline = fit(headline, inner, 13.0);
            let _ = write!(body, "<text class=\"points\" x=\"{PAD}\" y=\"{}\">{headline}</text>", top + 12.0);
            top += HEADLINE;
        }
        if let Some(share) = self.share {
            body.push_str(&bar(share, top + 11.0));
            top += SHARE;
        }
        for (name, worth) in &self.rows {
            body.push_str(&row(name, *worth, top + 12.0));
            top += ROW;
        }
        let class = self.sign.map(|sign| format!(" {}", sign.class())).unwrap_or_default();
        let name =
            if self.class == "agent" { format!(" data-agent=\"{}\"", escape(&self.name)) } else { String::new() };
        translated(x, y, &format!(" class=\"{}{class}\"{name}", self.class), &body)
    }
}

/// The part of the tokens, as a bar and a number.
fn bar(share: f64, y: f64) -> String {
    let bar = |class: &str, width: f64| {
        let y = y - 6.5;
        format!("<rect class=\"{class}\" x=\"{PAD}\" y=\"{y}\" width=\"{width:.1}\" height=\"5\" rx=\"2.5\"/>")
    };
    let (all, own) = (bar("track", BAR), bar("bar", BAR * share.clamp(0.0, 1.0)));
    let right = WIDTH - PAD;
    let percent = percent(share);
    format!("{all}{own}<text class=\"meta\" x=\"{right}\" y=\"{y}\" text-anchor=\"end\">{percent} of tokens</text>")
}

fn row(name: &str, worth: Worth, y: f64) -> String {
    let right = WIDTH - PAD;
    let class = worth.sign().class();
    let points = worth.points().unwrap_or_else(|| "not measured".to_owned());
    format!(
        "<text class=\"meta\" x=\"{PAD}\" y=\"{y}\">{name}</text>\
         <text class=\"number {class}\" x=\"{right}\" y=\"{y}\" text-anchor=\"end\">{}</text>",
        fit(&points, 110.0, 11.0)
    )
}

fn share(tokens: f64, baseline: &Baseline) -> Option<f64> {
    Some(tokens / baseline.tokens).filter(|share| share.is_finite())
}

fn known<const N: usize>(rows: [(&'static str, Option<Worth>); N]) -> Vec<(&'static str, Worth)> {
    rows.into_iter().filter_map(|(name, worth)| Some((name, worth?))).collect()
}

fn tip<'a>(head: &str, advice: impl Iterator<Item = &'a str>) -> String {
    advice.fold(head.to_owned(), |tip, sentence| tip + "\n" + sentence)
}
