//! What happens in stories.
//!
//! Keys: `S` the person it happens to, `O` the same as an object, `H` as an owner; `Q`, `R` and `V` other persons (`V` only in questions); `n` and `m` numbers; `t`,
//! `one`, `packs`, `pack`, `got`, `lost`, `place` of the theme.

use crate::problem::Op;

/// What an event does to the number of things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// By `n`.
    One(Op),
    /// By `n * m`.
    Product(Op),
    /// By `n + m`.
    Sum(Op),
    /// `m` times as many.
    Times,
    /// Twice as many, without a number in the text.
    Double,
    /// Half as many, without a number in the text.
    Half,
}

#[rustfmt::skip]
pub(crate) const EVENTS: &[(Change, &[&str])] = &[
    (Change::One(Op::Add), &[
        "{S} {got} {n} more {t}",
        "{S} {got} another {n} {t}",
        "{S} {got} {n} {t}",
        "{Q} gave {O} {n} {t}",
        "{Q} gave {n} of {Q.his} own {t} to {O}",
        "{S} got {n} {t} from {Q}",
        "{S} was given {n} more {t} by {Q}",
        "{S} found {n} more {t} {place}",
        "{S} added {n} {t}",
        "{Q} brought {O} {n} more",
        "{S} came home with {n} new {t}",
        "{S} received {n} {t} [as a present|in the mail|from an aunt]",
        "{n} more {t} came from {Q}",
        "{S} [also|even] {got} {n} {t} [at the market|in town|on the way home]",
        "{Q}, who had too many {t}, let {O} have {n}",
    ]),
    (Change::One(Op::Subtract), &[
        "{S} {lost} {n} of them",
        "{S} {lost} {n} {t}",
        "{S} {lost} {n} of the {t}",
        "{S} gave {n} of the {t} to {Q}",
        "{S} gave {Q} {n} {t}",
        "{Q} took {n} of them",
        "{Q} asked for {n} {t} and got them from {O}",
        "{S} sold {n} {t}",
        "{S} let {Q} have {n} of the {t}",
        "{n} of the {t} [got lost|were stolen|were damaged and had to be thrown out]",
        "{S} handed {n} {t} over to {Q}",
        "{S} lent {n} {t} to {Q}",
        "{S} left {n} {t} with {Q}",
        "{S} sent {n} of {H} {t} to {Q}",
        "out of {H} {t}, {S} {lost} {n}",
    ]),
    (Change::Product(Op::Add), &[
        "{S} {got} {n} {packs} of {m} {t} each",
        "{S} {got} {n} {packs} with {m} {t} in each [{pack}|of them]",
        "{S} {got} {n} more {packs} of {t}, and each {pack} held {m} {t}",
        "{Q} brought {n} {packs}, each with {m} {t}",
        "{n} friends gave {O} {m} {t} each",
        "each of {n} friends gave {O} {m} {t}",
        "for {n} days {S} {got} {m} {t} a day",
        "{S} {got} {m} {t} every day for {n} days",
        "on each of the next {n} days {S} {got} {m} {t}",
        "{S} found {n} {packs} that had {m} {t} each",
        "every week for {n} weeks, {Q} gave {O} {m} {t}",
        "{S} got {m} {t} from every one of {H} {n} cousins",
    ]),
    (Change::Product(Op::Subtract), &[
        "{S} gave {m} {t} to each of {n} friends",
        "{S} gave each of {H} {n} [cousins|neighbors|classmates] {m} {t}",
        "{S} {lost} {m} {t} a day for {n} days",
        "each day for {n} days, {S} {lost} {m} of the {t}",
        "{n} friends took {m} {t} each",
        "{S} filled {n} {packs} with {m} {t} each and gave them away",
        "{S} sold {n} {packs} of {m} {t}",
        "{S} sold {n} {packs}, and in each {pack} there were {m} {t}",
        "{n} children came, and {S} gave every child {m} {t}",
        "{S} handed out {m} {t} to every one of {n} [guests|visitors|people]",
        "for a party, {S} put {m} {t} on each of {n} tables and left them there",
    ]),
    (Change::Sum(Op::Add), &[
        "{S} {got} {n} {t} on Monday and {m} on Tuesday",
        "{S} got {n} {t} from {Q} and {m} from {R}",
        "{Q} gave {O} {n} {t}, and {R} gave {O} {m}",
        "{S} {got} {n} red {t} and {m} blue ones",
        "{S} {got} {n} {t} before lunch and {m} more after lunch",
    ]),
    (Change::Sum(Op::Subtract), &[
        "{S} gave {n} {t} to {Q} and {m} to {R}",
        "{Q} took {n} of the {t}, and {R} took {m}",
        "{S} {lost} {n} {t} in the morning and {m} in the evening",
        "{S} {lost} {n} of the {t} on Friday and another {m} on Saturday",
        "{S} gave {n} of them to {H} sister and {m} to {H} brother",
    ]),
    (Change::Times, &[
        "a year later {S} had {m} times as many",
        "{S} worked hard and soon had {m} times as many {t}",
        "the number of {H} {t} grew to {m} times what it was",
    ]),
    (Change::Double, &[
        "{S} doubled the number of {H} {t}",
        "soon {S} had twice as many",
        "{Q} gave {O} as many {t} as {S} already had",
    ]),
    (Change::Half, &[
        "{S} gave half of {H} {t} to {Q}",
        "{S} kept only half of them",
        "half of the {t} were given away",
        "{S} {lost} half of the {t}",
    ]),
];

/// How stories begin, by what the first number is made of.
#[rustfmt::skip]
pub(crate) const SETUPS: &[(Option<Op>, &[&str])] = &[
    (None, &[
        "{P} had {n} {t}",
        "{P} had {n} {t} {place}",
        "at first, {P} had {n} {t}",
        "{P} started with {n} {t}",
        "{P} kept {n} {t} {place}",
        "in the morning {P} had {n} {t}",
        "{P} counted {H} {t} and found {n}",
        "{P} owned {n} {t}",
        "last week {P} had {n} {t} {place}",
        "the {n} {t} {place} belonged to {P}",
        "{P} {got} {n} {t}",
        "there were {n} {t} in {H} collection when {S} began",
    ]),
    (Some(Op::Multiply), &[
        "{P} had {n} {packs} of {m} {t} each",
        "{P} {got} {n} {packs} of {t} with {m} in each",
        "{P} had {n} {packs}. Each {pack} held {m} {t}",
        "each {pack} holds {m} {t}, and {P} had {n} full {packs}",
        "{P} {got} {m} {t} a day for {n} days",
        "{P} laid out {H} {t} in {n} rows of {m}",
    ]),
    (Some(Op::Add), &[
        "{P} had {n} red {t} and {m} blue {t}",
        "{P} had {n} old {t} and {m} new ones",
        "{P} got {n} {t} from {Q} and {m} {t} from {R}",
        "{P} {got} {n} {t} on Monday and {m} {t} on Tuesday",
        "{P} kept {n} {t} {place} and {m} at school",
        "{P} {got} {n} {t} in the morning and {m} in the afternoon",
    ]),
];

/// What may stand before an event.
pub(crate) const OPENERS: &[&str] = &[
    "then",
    "then",
    "after that,",
    "later,",
    "the next day",
    "in the afternoon",
    "a week later",
    "on Sunday",
    "in the evening",
    "next,",
    "during the holidays,",
    "one day",
    "soon after,",
    "at the end of the week",
];

/// Facts that change nothing.
pub(crate) const SPARES: &[&str] = &[
    "{Q} had {z} {t} of {Q.his} own",
    "{Q} had {z} {u}",
    "{P} also had {z} {u}",
    "{P} is {z} years old",
    "{P} has {z} friends who like {t}",
    "there were also {z} {u} {place}",
    "{Q} counted {z} {u} that day",
    "{P} has known {Q} for {z} years",
    "{P} walked {z} blocks that day",
    "{Q} paid ${z} for some {u}",
    "it took {z} minutes",
    "{R} wanted {z} {u}",
];
