//! Operating-system strings in serde: text where they are UTF-8, else a list of bytes.
//!
//! Linux paths and arguments are bytes. Serde refuses those that are no UTF-8; a plan must not.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form<'a> {
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
}

fn form(value: &OsStr) -> Form<'_> {
    match value.to_str() {
        Some(text) => Form::Text(Cow::Borrowed(text)),
        None => Form::Bytes(Cow::Borrowed(value.as_bytes())),
    }
}

fn value(form: Form<'_>) -> OsString {
    match form {
        Form::Text(text) => OsString::from(text.into_owned()),
        Form::Bytes(bytes) => OsString::from_vec(bytes.into_owned()),
    }
}

pub(crate) mod path {
    use super::{
        Deserialize, Deserializer, Form, Path, PathBuf, Serialize, Serializer, form, value,
    };

    pub(crate) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        form(path.as_os_str()).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Form::deserialize(from).map(|form| PathBuf::from(value(form)))
    }
}

pub(crate) mod list {
    use super::{Deserialize, Deserializer, Form, OsString, Serializer, form, value};

    pub(crate) fn serialize<S: Serializer>(list: &[OsString], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(list.iter().map(|item| form(item)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<OsString>, D::Error> {
        let forms = Vec::<Form<'_>>::deserialize(from)?;
        Ok(forms.into_iter().map(value).collect())
    }
}

/// A map as a list of `NAME=value` entries, since JSON keys must be text.
pub(crate) mod map {
    use serde::ser::Error as _;

    use super::{BTreeMap, Deserializer, OsStr, OsStrExt, OsString, OsStringExt, Serializer, list};

    pub(crate) fn serialize<S: Serializer>(
        map: &BTreeMap<OsString, OsString>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        if let Some(name) = map.keys().find(|name| name.as_bytes().contains(&b'=')) {
            let problem = format!("{name:?} is no name of a variable: it would be read as another");
            return Err(S::Error::custom(problem));
        }
        let entries: Vec<OsString> = map
            .iter()
            .map(|(name, value)| {
                let mut entry = name.clone();
                entry.push("=");
                entry.push(value);
                entry
            })
            .collect();
        list::serialize(&entries, to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<OsString, OsString>, D::Error> {
        let split = |entry: OsString| {
            let bytes = entry.into_vec();
            let at = bytes.iter().position(|byte| *byte == b'=').unwrap_or(bytes.len());
            let value = bytes.get(at + 1..).unwrap_or_default();
            (OsStr::from_bytes(&bytes[..at]).to_owned(), OsStr::from_bytes(value).to_owned())
        };
        Ok(list::deserialize(from)?.into_iter().map(split).collect())
    }
}
