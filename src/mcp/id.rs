//! The `id` of a message that is too long or too odd to be parsed, so that its sender gets an
//! answer to its own request and need not wait for ever.

use serde_json::Value;

/// The longest id that is understood, bytes.
const LONGEST: usize = 256;

/// Finds the top-level `id` of one JSON object that streams by. Keeps [`LONGEST`] bytes, however
/// long the message is.
#[derive(Debug, Default)]
pub(super) struct Scan {
    depth: u64,
    in_string: bool,
    escaped: bool,
    /// What stands at the top level since the last comma, strings included.
    member: Vec<u8>,
    found: Option<Value>,
}

impl Scan {
    /// Looks at the next bytes of the message.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.step(*byte);
        }
    }

    /// The id: a string or a whole number, as the protocol has it.
    pub(super) fn id(self) -> Option<Value> {
        self.found
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            self.keep(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_member();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b',' if self.depth == 1 => return self.end_member(),
            _ => {}
        }
        // The braces of the object itself are no part of a member.
        if !(matches!(byte, b'{' | b'}') && self.depth <= 1) {
            self.keep(byte);
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.member.len() <= LONGEST {
            self.member.push(byte);
        }
    }

    fn end_member(&mut self) {
        let member = std::mem::take(&mut self.member);
        let value = member.trim_ascii().strip_prefix(b"\"id\"").map(<[u8]>::trim_ascii_start);
        let Some(value) = value.and_then(|rest| rest.strip_prefix(b":")) else { return };
        let value = serde_json::from_slice(value).ok();
        self.found = value.filter(|id: &Value| id.is_string() || id.is_i64());
    }
}

/// The id of a whole message.
pub(super) fn of(message: &[u8]) -> Option<Value> {
    let mut scan = Scan::default();
    scan.feed(message);
    scan.id()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_id_is_found_wherever_it_stands() {
        for (message, id) in [
            (r#"{"jsonrpc":"2.0","id":7,"method":"x"}"#, json!(7)),
            (
                r#" { "params" : {"id":1,"a":[{"id":2}],"s":"}\"id\":3"} , "id" : "a,\"}b" } "#,
                json!("a,\"}b"),
            ),
            (r#"{"id":-5}"#, json!(-5)),
            (r#"{"code":"\ud800","id":9}"#, json!(9)),
        ] {
            assert_eq!(of(message.as_bytes()), Some(id), "{message}");
        }
    }

    #[test]
    fn what_is_no_id_is_none() {
        let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(1000));
        for message in [
            r#"{"id":null}"#,
            r#"{"id":1.5}"#,
            r#"{"id":{}}"#,
            r#"{"x":"id"}"#,
            "[]",
            "",
            "}}]]",
            &long,
        ] {
            assert_eq!(of(message.as_bytes()), None, "{message}");
        }
    }

    #[test]
    fn a_long_message_leaves_little_behind() {
        let mut scan = Scan::default();
        scan.feed(br#"{"params":""#);
        for _ in 0..1000 {
            scan.feed(&[b'x'; 1000]);
        }
        assert!(scan.member.capacity() <= 4 * LONGEST);
        scan.feed(br#"","id":12}"#);
        assert_eq!(scan.id(), Some(json!(12)));
    }
}
