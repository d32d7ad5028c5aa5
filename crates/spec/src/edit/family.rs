//! What the rows of the registry of edit families become. The rows themselves are in `edit.rs`.

use super::{Edit, FAMILIES, Family, edits};
use crate::{Language, Plan};
use std::fmt;
use std::str::FromStr;

/// One row of the registry.
#[derive(Debug, Clone, Copy)]
pub struct EditFamily {
    /// By what it is found.
    pub family: Family,
    /// Its name, as in recipes, traces and reports.
    pub name: &'static str,
    /// What its edits do, in one line.
    pub about: &'static str,
}

/// A name that no family has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown edit family `{name}`; expected one of {}", Family::ALL.map(Family::as_str).join(", "))]
pub struct UnknownFamily {
    pub name: String,
}

macro_rules! families {
    ($($family:ident = $name:literal, $about:literal;)*) => {
        /// The families of edits.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum Family {
            $(#[doc = $about] $family,)*
        }

        /// All families, in the order of [`Family::ALL`].
        pub const FAMILIES: &[EditFamily] =
            &[$($crate::edit::EditFamily { family: Family::$family, name: $name, about: $about }),*];

        impl Family {
            /// All of them.
            pub const ALL: [Family; FAMILIES.len()] = [$(Family::$family),*];

            /// Its name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Family::$family => $name),*
                }
            }
        }
    };
}

pub(super) use families;

impl Family {
    /// Its edits that apply to a team.
    pub fn edits(self, plan: &Plan, language: &Language) -> Vec<Edit> {
        edits(plan, language).into_iter().filter(|edit| edit.family == self).collect()
    }
}

impl FromStr for Family {
    type Err = UnknownFamily;

    fn from_str(text: &str) -> Result<Self, UnknownFamily> {
        let known = FAMILIES.iter().find(|row| row.name == text);
        known.map(|row| row.family).ok_or_else(|| UnknownFamily { name: text.to_owned() })
    }
}

impl fmt::Display for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for row in FAMILIES {
            assert_eq!(row.name.parse(), Ok(row.family));
            assert_eq!((row.family.as_str(), row.family.to_string().as_str()), (row.name, row.name));
            assert_eq!(serde_json::to_value(row.family).unwrap(), row.name);
        }
        let error = "fame".parse::<Family>().unwrap_err().to_string();
        assert!(error.starts_with("unknown edit family `fame`; expected one of dependency, role, "), "{error}");
    }
}
