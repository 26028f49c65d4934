//! Lists of functions, whose names may have commas themselves.

/// Names of functions, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionNames(pub Vec<String>);

/// Names with commas between; those in brackets, as in `f(int, long)`, belong to a name.
pub(super) fn parse(text: &str) -> Result<FunctionNames, String> {
    let mut names = vec![String::new()];
    let mut open = 0_usize;
    for (at, character) in text.char_indices() {
        match character {
            '<' if is_operator(&text[..at]) => {}
            '(' | '<' | '{' | '[' => open += 1,
            ')' | '>' | '}' | ']' => open = open.saturating_sub(1),
            ',' if open == 0 => {
                names.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(name) = names.last_mut() {
            name.push(character);
        }
    }
    let names: Vec<String> = names.iter().map(|name| name.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) {
        return Err("a name is empty".to_owned());
    }
    Ok(FunctionNames(names))
}

/// True if a `<` behind it is of `operator<` or `operator<<`.
fn is_operator(before: &str) -> bool {
    before.ends_with("operator") || before.ends_with("operator<")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_part_names_but_for_those_in_brackets() {
        for (text, expected) in [
            ("parse", &["parse"][..]),
            ("parse, serve", &["parse", "serve"]),
            ("f(int, long),g", &["f(int, long)", "g"]),
            (
                "std::map<int, long>::at,g",
                &["std::map<int, long>::at", "g"],
            ),
            (
                "operator<<,a::operator->,g",
                &["operator<<", "a::operator->", "g"],
            ),
            ("a::operator<(a, a),g", &["a::operator<(a, a)", "g"]),
        ] {
            assert_eq!(parse(text).unwrap().0, expected, "{text}");
        }
        for wrong in ["", ",", "f,", "f,,g", " "] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
