//! What the colours, signs and lines of the picture mean.

use super::card::mark;
use super::{MARGIN, Passage, level_colour, messages, translated};
use crate::credit::{Credit, Sign, Worth};
use crate::export::markup::{fit, width};
use crate::{Summary, Trace, text};
use std::collections::BTreeMap;

const HEIGHT: f64 = 34.0;
const LINE: f64 = 18.0;

pub(super) struct Legend {
    pub body: String,
    pub width: f64,
    pub height: f64,
}

/// Only what is in this picture. Breaks lines to stay within `room`.
pub(super) fn legend(summary: &Summary, trace: &Trace, credit: &Credit, room: f64) -> Legend {
    let mut items: Vec<(String, String)> = Vec::new();
    let levels: BTreeMap<usize, &str> =
        summary.agents.iter().map(|agent| (agent.level, agent.capacity.as_str())).collect();
    for (level, name) in levels {
        let swatch =
            format!("<rect x=\"3\" y=\"-9\" width=\"10\" height=\"10\" rx=\"2\" fill=\"{}\"/>", level_colour(level));
        items.push((swatch, name.to_owned()));
    }
    for status in ["done", "failed", "skipped", "cancelled", "running", "waiting"] {
        if summary.agents.iter().any(|agent| text::status(agent) == status) {
            let sign = format!("<g class=\"{status}\" transform=\"translate(8 -4)\">{}</g>", mark(status));
            items.push((sign, status.to_owned()));
        }
    }
    let messages = messages(trace);
    let line = |class: &str, width| format!("<path class=\"edge {class}\" stroke-width=\"{width}\" d=\"M0-4H17\"/>");
    if messages.values().any(|passage| matches!(passage, Passage::Read(_))) {
        items.push((line("read", 3), "message (thicker: more tokens)".to_owned()));
    }
    if messages.values().any(|passage| matches!(passage, Passage::Withheld)) {
        items.push((line("withheld", 2), "withheld".to_owned()));
    }
    items.extend(signs(summary, credit));
    let (mut x, mut y, mut widest) = (0.0, HEIGHT - MARGIN, 0.0_f64);
    let mut body = String::new();
    for (sign, name) in items {
        let width = 22.0 + width(&name, 11.0).min(260.0) + 16.0;
        if x > 0.0 && x + width > room {
            (x, y) = (0.0, y + LINE);
        }
        let item = format!("{sign}<text class=\"meta\" x=\"22\">{}</text>", fit(&name, 260.0, 11.0));
        body.push_str(&translated(x, y, "", &item));
        x += width;
        widest = widest.max(x);
    }
    Legend { body, width: widest, height: y + MARGIN }
}

/// What was measured of the agents and of what they read.
fn signs(summary: &Summary, credit: &Credit) -> Vec<(String, String)> {
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
        let class = sign.class();
        format!("<g class=\"{class}\"><rect class=\"card\" x=\"1\" y=\"-10\" width=\"16\" height=\"12\" rx=\"3\"/></g>")
    };
    let named = named.into_iter().filter(|(sign, _)| drawn.contains(sign));
    named.map(|(sign, name)| (swatch(sign), name.to_owned())).collect()
}
