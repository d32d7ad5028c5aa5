//! What came back so far, as features: the answers that replies state, and who supports each.

use crate::linear::LogisticModel;
use crate::task::SeenReply;
use crate::team::TeamCounts;

pub(crate) const ANSWER_FEATURES: usize = 50;
/// What the text of the question says of each level: log-odds that a reply is right, logarithm of its tokens.
pub(crate) const TEXT_VIEWS: usize = 6;
pub(crate) const PREFIX_FEATURES: usize = 11 + 2 * TEXT_VIEWS + 3 + PLAIN_USED;
/// Plain features of the question that are used again here: those behind the four groups.
const PLAIN_USED: usize = 9;
/// What a usual log-probability is taken to be, so that an unknown one counts as usual.
const USUAL_LOG_SURE: f64 = -0.2;
/// Characters of a reply over its weighted tokens, about: what is longer than expected is told from this.
const CHARS_PER_TOKEN: f64 = 3.0;

/// Replies that state the same answer: positions in the prefix.
pub(crate) type Support = Vec<usize>;

/// The answers of a prefix, in the order first given. Programs are never the same answer.
pub(crate) fn answers(seen: &[&SeenReply], votable: bool) -> Vec<Support> {
    let mut answers: Vec<(Option<&str>, Support)> = Vec::new();
    for (at, reply) in seen.iter().enumerate() {
        let Some(answer) = reply.answer.as_deref() else { continue };
        match answers.iter_mut().find(|(known, _)| votable && *known == Some(answer)) {
            Some((_, support)) => support.push(at),
            None => answers.push((Some(answer), vec![at])),
        }
    }
    answers.into_iter().map(|(_, support)| support).collect()
}

/// What is known of a question when its replies are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'a> {
    /// What its words say of each level.
    pub views: &'a [f64; TEXT_VIEWS],
    /// The numbers that it states.
    pub numbers: &'a [f64],
    /// Whether confidences are hidden.
    pub hide_sure: bool,
}

/// The features of one answer of a prefix.
pub(crate) fn answer_features(seen: &[&SeenReply], answers: &[Support], own: usize, known: Known<'_>) -> Vec<f64> {
    let Known { views, numbers, hide_sure } = known;
    let count = |support: &[usize]| {
        let mut counts = [0.0; 3];
        for reply in support.iter().filter_map(|at| seen.get(*at)) {
            if let Some(count) = counts.get_mut(reply.level) {
                *count += 1.0;
            }
        }
        counts
    };
    let all: Vec<usize> = (0..seen.len()).collect();
    let support = answers.get(own).map(Vec::as_slice).unwrap_or_default();
    let rivals = answers.iter().enumerate().filter(|(at, _)| *at != own).map(|(_, rival)| rival);
    // Of equal rivals the first: `max_by_key` would take the last.
    let rival = rivals.rev().max_by_key(|rival| rival.len()).map(Vec::as_slice).unwrap_or_default();
    let (own_counts, rival_counts, asked) = (count(support), count(rival), count(&all));
    let flag = |condition: bool| f64::from(u8::from(condition));
    let mut features = Vec::with_capacity(ANSWER_FEATURES);
    for level in 0..3 {
        let (own, rival, asked) = (own_counts[level], rival_counts[level], asked[level]);
        features.extend([flag(own > 0.0), own, own / asked.max(1.0), flag(rival > 0.0), rival]);
    }
    for level in 0..3 {
        let of_level = support.iter().filter_map(|at| seen.get(*at)).filter(|reply| reply.level == level);
        let known: Vec<f64> = of_level.filter_map(|reply| reply.log_sure.filter(|_| !hide_sure)).collect();
        let mean = lemon_num::mean_of(known).unwrap_or(USUAL_LOG_SURE);
        features.push(mean.clamp(-3.0, 0.0) - USUAL_LOG_SURE);
    }
    let stated: usize = answers.iter().map(Vec::len).sum();
    features.extend([
        flag(own_counts[1] > 0.0 && own_counts[2] > 0.0),
        flag(own_counts[0] > 0.0 && own_counts[2] > 0.0),
        answers.len() as f64,
        (seen.len() - stated.min(seen.len())) as f64 / seen.len().max(1) as f64,
        support.len() as f64 / stated.max(1) as f64,
        seen.len() as f64,
        flag(rival.len() >= support.len() && !rival.is_empty()),
    ]);
    features.extend((0..3).map(|level| views[2 * level] * flag(own_counts[level] > 0.0)));
    // Long replies err more often than short ones to the same question.
    for level in 0..3 {
        let of_level = support.iter().filter_map(|at| seen.get(*at)).filter(|reply| reply.level == level);
        let usual = views[2 * level + 1] + CHARS_PER_TOKEN.ln();
        let longer = lemon_num::mean_of(of_level.map(|reply| reply.log_length - usual));
        features.push(longer.unwrap_or_default().clamp(-5.0, 5.0));
    }
    let sure_of = |replies: &[usize]| {
        let known = replies.iter().filter_map(|at| seen.get(*at)?.log_sure.filter(|_| !hide_sure));
        lemon_num::mean_of(known.map(|log_sure| log_sure.clamp(-3.0, 0.0).exp()))
    };
    // How sure of itself the answer is, and how much surer than its rival: 0 where it is not known.
    let (own_sure, rival_sure) = (sure_of(support), sure_of(rival));
    let usual = USUAL_LOG_SURE.exp();
    features.extend([
        own_sure.unwrap_or(usual) - usual,
        own_sure.zip(rival_sure).map_or(0.0, |(own, rival)| own - rival),
        f64::from(u8::from(own_sure.is_some())),
        own_sure.unwrap_or(usual).powi(4) - usual.powi(4),
    ]);
    // Votes weighed by how sure they are.
    for replies in [support, rival] {
        let mut sums = [0.0; 3];
        for reply in replies.iter().filter_map(|at| seen.get(*at)) {
            let sure = reply.log_sure.filter(|_| !hide_sure).unwrap_or(USUAL_LOG_SURE).clamp(-3.0, 0.0).exp();
            if let Some(sum) = sums.get_mut(reply.level) {
                *sum += sure;
            }
        }
        features.extend(sums);
    }
    let stated = support.first().and_then(|at| seen.get(*at)?.answer.as_deref()).unwrap_or_default();
    features.extend(looks(stated, numbers));
    features
}

/// How an answer looks: the letter of an option (models like some letters better than others), or the kind of number.
fn looks(stated: &str, numbers: &[f64]) -> [f64; 9] {
    let flag = |condition: bool| f64::from(u8::from(condition));
    let letter = |letter: &str| flag(stated == letter);
    let number = stated.parse::<f64>().ok().filter(|number| number.is_finite());
    let of = |value: fn(f64) -> f64| number.map_or(0.0, value);
    [
        letter("a"),
        letter("b"),
        letter("c"),
        letter("d"),
        letter("e"),
        of(|number| f64::from(u8::from(number.fract() != 0.0))),
        of(|number| f64::from(u8::from(number <= 0.0))),
        of(|number| number.abs().ln_1p().min(30.0) / 5.0),
        flag(number.is_some_and(|number| numbers.contains(&number))),
    ]
}

/// The answer that a prefix would give, and how likely it is right.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Standpoint {
    /// The replies that state it; empty: no reply states an answer.
    pub support: Support,
    pub probability: f64,
    /// How likely the next best answer is right.
    pub second: f64,
}

/// What no stated answer is worth.
const NO_ANSWER: f64 = 0.02;

/// Weighs the answers of a prefix.
pub(crate) fn standpoint(
    model: Option<&LogisticModel>,
    seen: &[&SeenReply],
    votable: bool,
    known: Known<'_>,
) -> Standpoint {
    let answers = answers(seen, votable);
    let mut best = Standpoint { support: Vec::new(), probability: NO_ANSWER, second: 0.0 };
    for (at, support) in answers.iter().enumerate() {
        let features = answer_features(seen, &answers, at, known);
        let probability = model.map_or(0.5, |model| model.probability(&features));
        if best.support.is_empty() || probability > best.probability {
            let second = if best.support.is_empty() { 0.0 } else { best.probability };
            best = Standpoint { support: support.clone(), probability, second };
        } else {
            best.second = best.second.max(probability);
        }
    }
    best
}

/// The features of a prefix, for the worth of teams that may be asked next.
pub(crate) fn prefix_features(
    counts: TeamCounts,
    probability: f64,
    second: f64,
    views: &[f64; TEXT_VIEWS],
    plain: &[f64],
) -> Vec<f64> {
    let [brief, program, reasoned] = counts.0.map(f64::from);
    let is_empty = counts == TeamCounts::NONE;
    let odds = if is_empty { 0.0 } else { lemon_num::logit(probability.clamp(0.01, 0.99)) };
    let mut features = vec![
        brief,
        program,
        reasoned,
        program * program / 3.0,
        reasoned * reasoned / 4.0,
        odds,
        odds * odds,
        odds.powi(3) / 5.0,
        second,
        odds * reasoned,
        odds * program,
    ];
    features.extend(views);
    features.extend(views.iter().map(|view| if is_empty { *view } else { 0.0 }));
    features.extend((0..3).map(|level| odds * views[2 * level]));
    features.extend(plain.iter().skip(plain.len().saturating_sub(PLAIN_USED)));
    features
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::PLAIN_FEATURES;

    fn reply(level: usize, answer: Option<&str>) -> SeenReply {
        SeenReply { level, answer: answer.map(str::to_owned), log_sure: None, log_length: 3.0 }
    }

    #[test]
    fn features_have_their_widths() {
        let seen = [reply(1, Some("4")), reply(2, Some("4")), reply(2, None), reply(2, Some("5"))];
        let seen: Vec<&SeenReply> = seen.iter().collect();
        let answers = answers(&seen, true);
        assert_eq!(answers, [vec![0, 1], vec![3]]);
        let known = Known { views: &[0.5; TEXT_VIEWS], numbers: &[4.0], hide_sure: false };
        let features = answer_features(&seen, &answers, 0, known);
        assert_eq!(features.len(), ANSWER_FEATURES);
        assert_eq!(features[5..10], [1.0, 1.0, 1.0, 0.0, 0.0], "programs: one of one supports it");
        assert_eq!(features[10..15], [1.0, 1.0, 1.0 / 3.0, 1.0, 1.0], "reasoners: one of three, a rival has one");
        assert_eq!(features.last(), Some(&1.0), "the question states this number");
        assert_eq!(looks("c", &[])[..5], [0.0, 0.0, 1.0, 0.0, 0.0]);
        assert_eq!(looks("-2.5", &[2.5])[5..], [1.0, 1.0, 3.5f64.ln() / 5.0, 0.0]);
        let prefix = prefix_features(TeamCounts([0, 1, 3]), 0.7, 0.2, &[0.5; TEXT_VIEWS], &[1.0; PLAIN_FEATURES]);
        assert_eq!(prefix.len(), PREFIX_FEATURES);
    }

    #[test]
    fn programs_are_never_the_same_answer() {
        let seen = [reply(2, Some("x")), reply(2, Some("x"))];
        let seen: Vec<&SeenReply> = seen.iter().collect();
        assert_eq!(answers(&seen, false).len(), 2);
        assert_eq!(answers(&seen, true).len(), 1);
    }
}
