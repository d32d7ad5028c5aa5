//! A card: an agent, the answer, or an agent of an earlier round.

use super::TeamWorth;
use super::effects::{Effects, Sign, Worth, percent};
use crate::markup::Markup;
use crate::measure::fit;
use crate::svg::{Anchor, element, rect, text};
use crate::words;
use lemon_spec::edit::Change;
use lemon_spec::{AnswerRule, Next, PlannedAgent, Share};

pub(super) const WIDTH: f64 = 228.0;
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
pub(super) struct Card {
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
    pub fn agent(agent: &PlannedAgent, team: &TeamWorth, effects: &Effects) -> Card {
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
            share: team.agents.get(&agent.id).and_then(|tokens| share(*tokens, team)),
            rows: known(rows),
            tip: tip(&format!("{}: {role}", agent.id), effects.advice_on(&agent.id)),
            role,
        }
    }

    pub fn answer(team: &TeamWorth, effects: &Effects) -> Card {
        let plan = team.plan;
        let by = |rule| effects.gain(&Change::AnswerBy { rule });
        let rows = [
            ("by the last instead", by(AnswerRule::Last)),
            ("by a vote instead", by(AnswerRule::Vote)),
            ("by a judge instead", by(AnswerRule::Judge)),
            ("by a test instead", by(AnswerRule::Test)),
            ("stop after this round", effects.gain(&Change::Stop)),
            ("review this round", effects.gain(&Change::Review)),
        ];
        let own = |id: &String| plan.agents().iter().any(|agent| agent.id == *id);
        // A judge is in no team's text, and is paid for its answer.
        let others: f64 = team.agents.iter().filter(|(id, _)| !own(id)).map(|(_, tokens)| tokens).sum();
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
                AnswerRule::Test => "by a test",
            }
            .to_owned(),
            role: role.to_owned(),
            headline: Some(format!("{} right", words::percent(team.success))),
            share: share(others, team).filter(|share| *share > 0.0),
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

    /// What the card says, for readers who do not see it. `None` for what is not of this team.
    pub fn words(&self) -> Option<String> {
        let headline = self.headline.as_ref()?;
        let share = self.share.map(|share| format!(", {} of tokens", percent(share))).unwrap_or_default();
        Some(format!("{}: {headline}{share}", self.name))
    }

    pub fn draw(&self, x: f64, y: f64) -> Markup {
        let inner = WIDTH - 2.0 * PAD;
        let sign = self.sign.map_or("", Sign::class);
        let mut card = element("g").class(format!("{} {sign}", self.class).trim_end());
        if self.class == "agent" {
            card = card.attribute("data-agent", &self.name);
        }
        let frame = rect("card", (0.5, 0.5), (WIDTH - 1.0, self.height() - 1.0)).attribute("rx", "6");
        let at_left = |class, y, content: &str| text(class, (PAD, y), Anchor::Start, content);
        card = card
            .moved(x, y)
            .title(&self.tip)
            .child(frame)
            .child(at_left("id", 20.0, &fit(&self.name, inner - 92.0, 13.6)))
            .child(at_right("meta", 20.0, &fit(&self.aside, 84.0, 11.0)));
        let mut top = HEAD;
        if !self.role.is_empty() {
            card = card.child(at_left("role", top + 8.0, &fit(&self.role, inner, 11.5)));
            top += ROLE;
        }
        if let Some(headline) = &self.headline {
            card = card.child(at_left("points", top + 12.0, &fit(headline, inner, 13.0)));
            top += HEADLINE;
        }
        if let Some(share) = self.share {
            let bar = |class, long| rect(class, (PAD, top + 4.5), (long, 5.0)).attribute("rx", "2.5");
            card = card.child(bar("track", BAR)).child(bar("bar", BAR * share.clamp(0.0, 1.0)));
            card = card.child(at_right("meta", top + 11.0, &format!("{} of tokens", percent(share))));
            top += SHARE;
        }
        for (name, worth) in &self.rows {
            let points = worth.points().unwrap_or_else(|| "not measured".to_owned());
            let class = format!("number {}", worth.sign().class());
            card = card.child(at_left("meta", top + 12.0, name));
            card = card.child(at_right(&class, top + 12.0, &fit(&points, 110.0, 11.0)));
            top += ROW;
        }
        card.into()
    }
}

/// A text whose end stands at the right edge.
fn at_right(class: &str, y: f64, content: &str) -> crate::svg::Element {
    text(class, (WIDTH - PAD, y), Anchor::End, content)
}

fn share(tokens: f64, team: &TeamWorth) -> Option<f64> {
    Some(tokens / team.tokens).filter(|share| share.is_finite())
}

fn known<const N: usize>(rows: [(&'static str, Option<Worth>); N]) -> Vec<(&'static str, Worth)> {
    rows.into_iter().filter_map(|(name, worth)| Some((name, worth?))).collect()
}

fn tip<'a>(head: &str, advice: impl Iterator<Item = &'a str>) -> String {
    advice.fold(head.to_owned(), |tip, sentence| tip + "\n" + sentence)
}
