//! The functions of the calculator.

use super::parse::small;
use super::{MOST_BITS, bounded, root, show};
use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, Zero};

/// A function: its name, and how many arguments it takes at least and at most.
const FUNCTIONS: [(&str, usize, usize); 14] = [
    ("abs", 1, 1),
    ("ceil", 1, 1),
    ("choose", 2, 2),
    ("factorial", 1, 1),
    ("floor", 1, 1),
    ("gcd", 2, MANY),
    ("lcm", 2, MANY),
    ("max", 1, MANY),
    ("mean", 1, MANY),
    ("min", 1, MANY),
    ("pow", 2, 2),
    ("round", 1, 2),
    ("sqrt", 1, 1),
    ("sum", 1, MANY),
];
const MANY: usize = usize::MAX;

/// Whether there is a function of this name.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    if FUNCTIONS.iter().any(|(known, ..)| *known == name) {
        return Ok(());
    }
    let near = FUNCTIONS.iter().map(|(known, ..)| (strsim::damerau_levenshtein(known, name), *known)).min();
    Err(match near {
        Some((distance, known)) if distance <= 2 && name.len() > 2 => {
            format!("unknown name `{name}`: did you mean `{known}`?")
        }
        _ => {
            let names = FUNCTIONS.map(|(known, ..)| known).join(", ");
            format!("unknown name `{name}`; there are no variables, and the functions are {names}")
        }
    })
}

pub(super) fn call(name: &str, arguments: Vec<BigRational>) -> Result<BigRational, String> {
    let Some((_, least, most)) = FUNCTIONS.iter().find(|(known, ..)| *known == name) else {
        return check_name(name).map(|()| BigRational::zero());
    };
    if !(*least..=*most).contains(&arguments.len()) {
        let takes = match (*least, *most) {
            (least, MANY) => format!("at least {least}"),
            (least, most) if least == most => least.to_string(),
            (least, most) => format!("{least} or {most}"),
        };
        let s = if takes.ends_with('1') { "" } else { "s" };
        return Err(format!("`{name}` takes {takes} argument{s}, got {}", arguments.len()));
    }
    let first = &arguments[0];
    bounded(match name {
        "abs" => first.abs(),
        "ceil" => first.ceil(),
        "floor" => first.floor(),
        "sqrt" => root(first, 2)?,
        "pow" => super::power(first, &arguments[1])?,
        "factorial" => factorial(natural(name, first)?)?,
        "choose" => choose(natural(name, first)?, natural(name, &arguments[1])?)?,
        "round" => match arguments.get(1) {
            None => first.round(),
            Some(places) => {
                let scale = super::power(&BigRational::from_integer(10.into()), places)?;
                (first * &scale).round() / scale
            }
        },
        "gcd" => whole(name, &arguments)?.into_iter().fold(BigInt::zero(), |a, b| a.gcd(&b)).into(),
        "lcm" => {
            let mut least = BigInt::one();
            for value in whole(name, &arguments)? {
                least = bounded(least.lcm(&value).into())?.to_integer();
            }
            least.into()
        }
        "max" => arguments.into_iter().fold(None, |most, it| most.max(Some(it))).unwrap_or_else(BigRational::zero),
        "min" => arguments.into_iter().reduce(Ord::min).unwrap_or_else(BigRational::zero),
        "mean" => {
            let count = BigInt::from(arguments.len());
            total(arguments)? / count
        }
        _ => total(arguments)?,
    })
}

fn total(arguments: Vec<BigRational>) -> Result<BigRational, String> {
    arguments.into_iter().try_fold(BigRational::zero(), |sum, value| bounded(sum + value))
}

fn whole(name: &str, arguments: &[BigRational]) -> Result<Vec<BigInt>, String> {
    let whole = |value: &BigRational| match value.is_integer() {
        true => Ok(value.to_integer()),
        false => Err(format!("`{name}` takes whole numbers, got {}", show(value))),
    };
    arguments.iter().map(whole).collect()
}

fn natural(name: &str, value: &BigRational) -> Result<u64, String> {
    small(value).ok_or_else(|| format!("`{name}` takes whole numbers of at least 0, got {}", show(value)))
}

fn factorial(n: u64) -> Result<BigRational, String> {
    // From 2^k on, every factor adds at least k bits: the bound ends the loop long before it is slow.
    (2..=n).try_fold(BigRational::one(), |product, factor| bounded(product * BigInt::from(factor)))
}

fn choose(n: u64, k: u64) -> Result<BigRational, String> {
    if k > n {
        return Ok(BigRational::zero());
    }
    let k = k.min(n - k);
    if k > MOST_BITS {
        return bounded(BigRational::from_integer(BigInt::one() << (MOST_BITS + 1)));
    }
    (1..=k).try_fold(BigRational::one(), |product, i| bounded(product * BigInt::from(n - k + i) / BigInt::from(i)))
}
