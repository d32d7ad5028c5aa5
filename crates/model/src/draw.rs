//! Samples one token from logits: the only random step of sampling a text.

use crate::SampleSettings;
use crate::grammar::Mask;
use lemon_num::Random;

/// A token that was drawn.
pub(crate) struct Drawn {
    pub(crate) token: u32,
    /// Its log-probability, where the cut at `top_p` (or taking the likeliest) changed it.
    pub(crate) logprob: Option<f32>,
}

/// Draws a token from the allowed ones. `None`: none is allowed, or no logit is a number.
pub(crate) fn draw(
    logits: &[f32],
    allowed: Option<&Mask>,
    settings: &SampleSettings,
    random: &mut Random,
) -> Option<Drawn> {
    let is_allowed = |token: usize| allowed.is_none_or(|mask| mask.allows(token as u32));
    let tokens = || logits.iter().enumerate().filter(|(token, logit)| is_allowed(*token) && logit.is_finite());
    let (likeliest, most) = tokens().fold(None, |best: Option<(usize, f32)>, (token, logit)| match best {
        Some((_, most)) if most >= *logit => best,
        _ => Some((token, *logit)),
    })?;
    if settings.temperature <= 0.0 {
        return Some(Drawn { token: likeliest as u32, logprob: Some(0.0) });
    }
    let weight = |logit: f32| f64::from((logit - most) / settings.temperature).exp();
    let place = random.uniform();
    if settings.top_p >= 1.0 {
        let total: f64 = tokens().map(|(_, logit)| weight(*logit)).sum();
        let mut reached = 0.0;
        let mut last = likeliest;
        for (token, logit) in tokens() {
            reached += weight(*logit);
            last = token;
            if reached > place * total {
                break;
            }
        }
        return Some(Drawn { token: last as u32, logprob: None });
    }
    let mut sorted: Vec<(usize, f64)> = tokens().map(|(token, logit)| (token, weight(*logit))).collect();
    // Ties go to the lower id, so that the cut is deterministic.
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let total: f64 = sorted.iter().map(|(_, weight)| weight).sum();
    let mut kept = 0.0;
    let count = sorted.iter().take_while(|(_, weight)| {
        let more = kept < f64::from(settings.top_p) * total;
        kept += if more { *weight } else { 0.0 };
        more
    });
    let count = count.count().max(1);
    let kept: f64 = sorted.iter().take(count).map(|(_, weight)| weight).sum();
    let mut reached = 0.0;
    let chosen = sorted.iter().take(count).find(|(_, weight)| {
        reached += weight;
        reached > place * kept
    });
    let (token, weight) = chosen.or(sorted.first())?;
    Some(Drawn { token: *token as u32, logprob: Some((weight / kept).ln() as f32) })
}
