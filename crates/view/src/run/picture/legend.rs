//! What the colours, signs and lines of the picture mean.

use super::card::mark;
use super::{MARGIN, Passage, level_colour, messages};
use crate::markup::Markup;
use crate::measure::{fit, width};
use crate::svg::{Anchor, Element, element, fixed, group, rect, text};
use lemon_trace::credit::{Credit, Sign, Worth};
use lemon_trace::{Summary, Trace, text as words};
use std::collections::BTreeMap;

const HEIGHT: f64 = 34.0;
const LINE: f64 = 18.0;
/// Longer names are cut.
const LONGEST_NAME: f64 = 260.0;

pub(super) struct Legend {
    pub body: Markup,
    pub width: f64,
    pub height: f64,
}

/// Only what is in this picture. Breaks lines to stay within `room`.
pub(super) fn legend(summary: &Summary, trace: &Trace, credit: &Credit, room: f64) -> Legend {
    let mut items: Vec<(Element, String)> = Vec::new();
    let levels: BTreeMap<usize, &str> =
        summary.agents.iter().map(|agent| (agent.level, agent.capacity.as_str())).collect();
    for (level, name) in levels {
        let swatch = rect("", (3.0, -9.0), (10.0, 10.0)).attribute("rx", "2").attribute("fill", level_colour(level));
        items.push((swatch, name.to_owned()));
    }
    for status in ["done", "failed", "skipped", "cancelled", "running", "waiting"] {
        if summary.agents.iter().any(|agent| words::status(agent) == status) {
            let sign = element("g").class(status).moved(8.0, -4.0).child(mark(status));
            items.push((sign, status.to_owned()));
        }
    }
    let messages = messages(trace);
    let line = |class: &str, width| fixed(class, "M0-4H17").number("stroke-width", width);
    if messages.values().any(|passage| matches!(passage, Passage::Read(_))) {
        items.push((line("edge read", 3.0), "message (thicker: more tokens)".to_owned()));
    }
    if messages.values().any(|passage| matches!(passage, Passage::Withheld)) {
        items.push((line("edge withheld", 2.0), "withheld".to_owned()));
    }
    items.extend(signs(summary, credit));
    let (mut x, mut y, mut widest) = (0.0, HEIGHT - MARGIN, 0.0_f64);
    let mut body = Markup::default();
    for (sign, name) in items {
        let width = 22.0 + width(&name, 11.0).min(LONGEST_NAME) + 16.0;
        if x > 0.0 && x + width > room {
            (x, y) = (0.0, y + LINE);
        }
        let name = fit(&name, LONGEST_NAME, 11.0);
        body.push(group(x, y).child(sign).child(text("meta", (22.0, 0.0), Anchor::Start, &name)));
        x += width;
        widest = widest.max(x);
    }
    Legend { body, width: widest, height: y + MARGIN }
}

/// What was measured of the agents and of what they read.
fn signs(summary: &Summary, credit: &Credit) -> Vec<(Element, String)> {
    let agents = summary.agents.iter().filter_map(|agent| credit.of_agent(&agent.id));
    let read = summary.agents.iter().flat_map(|agent| agent.after.iter().map(move |parent| (parent, &agent.id)));
    let messages = read.filter_map(|(from, to)| credit.of_message(from, to));
    let drawn: Vec<Sign> = agents.chain(messages).map(Worth::sign).collect();
    let named = [
        (Sign::Above, "adds to success"),
        (Sign::Below, "takes from success"),
        (Sign::Unclear, "unclear: within two standard errors of zero"),
        (Sign::Unmeasured, "worth not measured"),
    ];
    let swatch = |sign: Sign| {
        let card = rect("card", (1.0, -10.0), (16.0, 12.0)).attribute("rx", "3");
        element("g").class(sign.class()).child(card)
    };
    let named = named.into_iter().filter(|(sign, _)| drawn.contains(sign));
    named.map(|(sign, name)| (swatch(sign), name.to_owned())).collect()
}
