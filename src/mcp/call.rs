//! The arguments of a call → a [`Request`], or advice that the model can follow.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::request::{Draft, Request, SessionName, Work, beginning};

use super::Offer;

/// The tool's arguments, as the advice names them.
const NAMES: [&str; 4] = ["code", "env", "session", "timeout"];

/// Makes a request of a call's arguments, out of which its code is taken.
///
/// # Errors
/// One sentence for the model: what is wrong with the arguments and what would be right. They are
/// as they were then.
pub(super) fn request(
    arguments: &mut Map<String, Value>,
    offers: &[Offer],
) -> Result<Request, String> {
    let (mut code, mut environment, mut session, mut timeout) = (None, None, None, None);
    for (name, value) in arguments {
        match (name.as_str(), value) {
            (_, Value::Null) if NAMES.contains(&name.as_str()) => {}
            ("code", Value::String(text)) => code = Some(text),
            ("env", Value::String(text)) => environment = Some(text.as_str()),
            ("session", Value::String(name)) => session = Some(name.parse()?),
            ("timeout", Value::Number(number)) => timeout = Some(seconds(number.as_f64())?),
            ("code" | "env" | "session", value) => {
                return Err(wrong_type(name, "a string", value));
            }
            ("timeout", value) => return Err(wrong_type(name, "a number of seconds", value)),
            _ => {
                let (name, names) = (beginning(name), list(NAMES));
                return Err(format!("unknown argument {name:?}; the arguments are {names}"));
            }
        }
    }
    let code = code.ok_or("the argument code is missing: the source text to run")?;
    if code.len() > Request::MAX_CODE {
        return Err(format!(
            "code is {} bytes long; at most {} bytes are taken",
            code.len(),
            Request::MAX_CODE
        ));
    }
    let environment = known(environment, offers)?;
    let work = Work::Code(std::mem::take(code).into_bytes());
    Ok(Request { session, timeout, ..Request::new(environment, work) })
}

/// The session that a call names, if it does so properly: its turn is taken before anything else.
pub(super) fn session(arguments: Option<&Map<String, Value>>) -> Option<SessionName> {
    arguments?.get("session")?.as_str()?.parse().ok()
}

/// What can be told of a call that came to nothing.
pub(super) fn draft(arguments: Option<&Map<String, Value>>) -> Draft<'_> {
    let text = |name: &str| arguments?.get(name)?.as_str();
    Draft {
        environment: text("env"),
        session: text("session"),
        code: text("code").map(str::as_bytes),
    }
}

/// The name of an environment that is on offer.
fn known<'n>(name: Option<&'n str>, offers: &[Offer]) -> Result<&'n str, String> {
    let what = match name {
        Some(name) if offers.iter().any(|offer| offer.name == name) => return Ok(name),
        Some(name) => format!("there is no environment {:?}", beginning(name)),
        None => "the argument env is missing".to_owned(),
    };
    let names = offers.iter().filter(|offer| offer.available).map(|offer| offer.name.as_str());
    match list(names) {
        none if none.is_empty() => Err(format!("{what}; this server has no environment to run in")),
        names => Err(format!("{what}; the environments are {names}")),
    }
}

/// A time limit. Its upper bound is the environment's, which the runner knows.
fn seconds(number: Option<f64>) -> Result<Duration, String> {
    number
        .filter(|seconds| *seconds > 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "timeout must be a number of seconds above 0".to_owned())
}

fn wrong_type(name: &str, right: &str, value: &Value) -> String {
    let is = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    format!("{name} must be {right}, not {is}")
}

/// `a`, `a and b`, `a, b and c`.
fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn offers() -> Vec<Offer> {
        [("node", true), ("python", true), ("ruby", false), ("shell", true)]
            .map(|(name, available)| Offer {
                name: name.to_owned(),
                description: String::new(),
                available,
            })
            .to_vec()
    }

    fn ask(arguments: Value) -> Result<Request, String> {
        let Value::Object(mut arguments) = arguments else { panic!("an object") };
        request(&mut arguments, &offers())
    }

    #[test]
    fn a_good_call_is_a_request() {
        let asked = ask(json!({"code": "print(1)\0", "env": "python", "timeout": 0.5})).unwrap();
        assert_eq!(asked.work, Work::Code(b"print(1)\0".to_vec()));
        assert_eq!(asked.environment, "python");
        assert_eq!(asked.timeout, Some(Duration::from_millis(500)));
        assert_eq!(
            ask(json!({"code": "", "env": "shell", "timeout": null})).unwrap().timeout,
            None
        );
    }

    #[test]
    fn advice_names_what_would_be_right() {
        for (arguments, advice) in [
            (
                json!({"code": "", "env": "shell", "sesion": "a"}),
                "unknown argument \"sesion\"; the arguments are code, env, session and timeout",
            ),
            (
                json!({"code": "", "env": "perl"}),
                "there is no environment \"perl\"; the environments are node, python and shell",
            ),
            (
                json!({"code": ""}),
                "the argument env is missing; the environments are node, python and shell",
            ),
            (json!({"env": "shell"}), "the argument code is missing: the source text to run"),
            (json!({"code": 1, "env": "shell"}), "code must be a string, not a number"),
            (json!({"code": "", "env": ["shell"]}), "env must be a string, not an array"),
            (
                json!({"code": "", "env": "shell", "session": "../../x"}),
                "\"../../x\" is no name for a session; use 1 to 64 of A-Z, a-z, 0-9, `_`, `.` and `-`",
            ),
            (
                json!({"code": "", "env": "shell", "session": 3}),
                "session must be a string, not a number",
            ),
            (
                json!({"code": "", "env": "shell", "timeout": "5"}),
                "timeout must be a number of seconds, not a string",
            ),
            (
                json!({"code": "", "env": "shell", "timeout": 0}),
                "timeout must be a number of seconds above 0",
            ),
            (
                json!({"code": "", "env": "shell", "timeout": 1e300}),
                "timeout must be a number of seconds above 0",
            ),
        ] {
            assert_eq!(ask(arguments).unwrap_err(), advice);
        }
    }

    #[test]
    fn advice_is_short_however_long_the_words_are() {
        let long = "x".repeat(10_000);
        for arguments in [
            json!({"code": "", "env": long}),
            json!({"code": "", "env": "shell", "session": long}),
            json!({"code": "", "env": "shell", long: 1}),
        ] {
            let advice = ask(arguments).unwrap_err();
            assert!(advice.contains(&"x".repeat(80)) && advice.len() < 200, "{advice}");
        }
    }

    #[test]
    fn what_is_known_of_refused_arguments_is_all_that_was_text() {
        let Value::Object(mut arguments) = json!({"a": 1, "code": "c", "env": "e", "session": "/"})
        else {
            panic!("an object")
        };
        request(&mut arguments, &offers()).unwrap_err();
        let known = Draft { environment: Some("e"), session: Some("/"), code: Some(b"c") };
        assert_eq!(draft(Some(&arguments)), known);
        assert_eq!(draft(json!({"code": 1, "env": null}).as_object()), Draft::default());
        assert_eq!(draft(None), Draft::default());
    }

    #[test]
    fn an_environment_that_is_not_available_is_the_runners_to_refuse() {
        assert_eq!(ask(json!({"code": "", "env": "ruby"})).unwrap().environment, "ruby");
    }

    #[test]
    fn too_much_code_is_refused() {
        let code = "x".repeat(Request::MAX_CODE + 1);
        let advice = ask(json!({"code": code, "env": "shell"})).unwrap_err();
        assert_eq!(advice, "code is 8388609 bytes long; at most 8388608 bytes are taken");
        let code = "x".repeat(Request::MAX_CODE);
        assert!(ask(json!({"code": code, "env": "shell"})).is_ok());
    }
}
