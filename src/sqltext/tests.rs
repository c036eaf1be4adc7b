use proptest::prelude::*;

use super::Dialect::{MySql, Postgres, Sqlite};
use super::*;

const ALL: [Dialect; 3] = [Postgres, Sqlite, MySql];

/// One letter for each kind of token.
fn kinds(sql: &str, dialect: Dialect) -> String {
    let letter = |token: Token<'_>| match token.kind {
        TokenKind::Word => 'w',
        TokenKind::QuotedName => 'q',
        TokenKind::String => 's',
        TokenKind::Number => 'n',
        TokenKind::Parameter => '?',
        TokenKind::Comment => '#',
        TokenKind::Punctuation => token.text.chars().next().unwrap(),
    };
    Lexer::new(sql, dialect).map(letter).collect()
}

#[test]
fn each_dialect_has_its_own_tokens() {
    for (sql, postgres, sqlite, mysql) in [
        // Strings and quoted names.
        ("'it''s', \"a\"\"b\"", "s,q", "s,q", "s,s"),
        ("`a``b`", "`w``w`", "q", "q"),
        ("[a b]", "[ww]", "q", "[ww]"),
        (r"'a\'b'", "sws", "sws", "s"),
        (r"'a\' = $1 --'", "s=?#", "s=?#", "s"),
        (r#""a\"b""#, "qwq", "qwq", "s"),
        (r"E'it\'s; ''--' a", "sw", r"wsw;s#", "wsw"),
        ("note'x'", "ws", "ws", "ws"),
        // Dollar signs.
        ("$$ ; -- $1 $$", "s", "$$;#", "w;#"),
        ("$tag$ $$ ; $tag$ a", "sw", "?$$;?w", "ww;ww"),
        ("$tag", "$w", "?", "w"),
        ("a$b$ c", "ww", "ww", "ww"),
        ("a$1", "w", "w", "w"),
        ("$1", "?", "?", "?"),
        ("$1::int", "?::w", "?:?", "?::w"),
        ("$1AND", "?", "?", "?"),
        ("$", "$", "$", "w"),
        // Other parameters.
        ("?", "?", "?", "?"),
        ("?12", "?n", "?", "?n"),
        ("??", "??", "??", "??"),
        ("?a", "?w", "?w", "?w"),
        (":a @b", ":w@w", "??", ":w@w"),
        ("a :: b", "w::w", "w::w", "w::w"),
        // Comments.
        ("a -- b\nc", "w#w", "w#w", "w#w"),
        ("5--3", "n#", "n#", "n--n"),
        ("a --\tb\nc", "w#w", "w#w", "w#w"),
        ("a --", "w#", "w#", "w#"),
        ("-- a\rb", "#w", "#", "#"),
        ("a # b\nc", "w#ww", "w#ww", "w#w"),
        ("/* a /* b */ c */ d", "#w", "#w*/w", "#w*/w"),
        ("/*/ a */ b", "#w", "#w", "#w"),
        ("'/*' a /* ' */ b", "sw#w", "sw#w", "sw#w"),
        // Numbers and names.
        ("1.5e-3 1e5 0xFF .5 7", "nnn.nn", "nnn.nn", "nnn.nn"),
        ("1LIMIT 5", "nwn", "nwn", "wn"),
        ("é_1 名", "ww", "ww", "ww"),
        ("a\u{b}b", "ww", "ww", "ww"),
        ("a.b<=>c;", "w.w<=>w;", "w.w<=>w;", "w.w<=>w;"),
    ] {
        let found = ALL.map(|dialect| kinds(sql, dialect));
        assert_eq!(found, [postgres, sqlite, mysql], "{sql}");
    }
}

#[test]
fn an_escaped_string_may_go_on_after_a_line_break() {
    for (sql, expected) in [
        ("E'a'\n'b\\'$1' $2", "s?"),
        ("E'a' -- it\n '\\'$1' $2", "s?"),
        ("E'a' 'b\\' $1 --'", "ss?#"),
        ("'a'\n'b\\' $1", "ss?"),
    ] {
        assert_eq!(kinds(sql, Postgres), expected, "{sql}");
    }
}

#[test]
fn numbers_of_parameters_are_found() {
    for (sql, dialect, expected) in [
        ("SELECT a FROM t WHERE id = $1", Postgres, &[1][..]),
        ("SELECT a FROM t WHERE id=$1 OR alt=$1 AND x=$12", Postgres, &[1, 12]),
        ("SELECT data ? 'x' FROM t", Postgres, &[]),
        (
            "SELECT '$1', \"$2\", 'it''s $3', E'\\'$4', $$ $5 $$, $x$ $6 $x$, col$7, 'é' -- $8\n/* $9 */ FROM t",
            Postgres,
            &[],
        ),
        ("SELECT a FROM t /* a /* nested */ $2 */ WHERE id = $1", Postgres, &[1]),
        ("SELECT a FROM t WHERE id = ?", Sqlite, &[1]),
        ("SELECT a FROM t WHERE id = ?1 OR b = $1", Sqlite, &[1]),
        ("SELECT a FROM t WHERE id = ? AND b = ?", Sqlite, &[1, 2]),
        ("SELECT a FROM t WHERE id = ?7 AND b = ?", Sqlite, &[7, 8]),
        ("SELECT a FROM t WHERE id = :id", Sqlite, &[]),
        ("SELECT '?', \"?\", `?`, [?] -- ?\n/* ? */ FROM t", Sqlite, &[]),
        ("SELECT a FROM t WHERE id = ?", MySql, &[1]),
        ("SELECT a FROM t WHERE id=? AND 5--3=?", MySql, &[1, 2]),
        ("SELECT 'it\\'s ?', \"?\", `?`, a$1, $2 # ?\n-- ?\n/* ? */ FROM t", MySql, &[]),
        ("SELECT a FROM t WHERE id = ?4294967295 OR b = ?", Sqlite, &[u32::MAX]),
    ] {
        assert_eq!(parameter_numbers(sql, dialect).into_iter().collect::<Vec<_>>(), expected, "{sql}");
    }
}

#[test]
fn words_within_quotes_and_comments_do_not_count() {
    for dialect in ALL {
        assert!(has_word("SELECT a FROM t limit 5", dialect, &["LIMIT", "FETCH"]));
        assert!(!has_word("SELECT 'limit', \"fetch\", limits FROM t -- LIMIT\n", dialect, &["LIMIT", "FETCH"]));
    }
}

fn text(sql: &str, dialect: Dialect) -> Result<&str, NotOneStatement> {
    SingleStatement::parse(sql, dialect).map(|statement| statement.text)
}

#[test]
fn what_trails_a_statement_is_cut_off() {
    let plain = "SELECT name FROM users WHERE id = $1";
    for tail in ["", ";", " ; ;\n", " -- done", ";-- done\n/* a /* nested */ b */ ;", "\t/* ' */"] {
        assert_eq!(text(&format!(" \n{plain}{tail}"), Postgres), Ok(plain), "{tail:?}");
    }
}

#[test]
fn quotes_hide_semicolons_and_comments() {
    for sql in [
        "SELECT ';--' AS a, \"odd;name\" FROM t",
        "SELECT E'it\\'s; ''--' AS a",
        "SELECT $$ ; -- $$, $tag$ $$ ; $tag$ FROM t",
        "SELECT 'it''s; fine'",
        "SELECT a /* ; */ FROM t",
        "SELECT a$b$ FROM t WHERE c = ';'",
    ] {
        assert_eq!(text(sql, Postgres), Ok(sql));
    }
}

#[test]
fn more_than_one_statement_is_refused() {
    assert_eq!(text("SELECT 1; DROP TABLE users", Postgres), Err(NotOneStatement::Several));
    assert_eq!(text("SELECT 1; -- x\nSELECT 2", Postgres), Err(NotOneStatement::Several));
    assert_eq!(text(" ; -- nothing", Postgres), Err(NotOneStatement::Empty));
    assert_eq!(text("", Postgres), Err(NotOneStatement::Empty));
}

#[test]
fn parameters_of_sqlite_are_found() {
    let found = |sql| SingleStatement::parse(sql, Sqlite).unwrap().parameters;
    assert_eq!(found("SELECT a FROM t WHERE id = $1 AND b = '?' AND [c?] = ?"), ["$1", "?"]);
    assert_eq!(found("SELECT `$2`, \"?3\" FROM t WHERE id = ?12 -- :x"), ["?12"]);
    assert_eq!(found("SELECT a FROM t WHERE id = :id OR id = @id"), [":id", "@id"]);
}

#[test]
fn parameters_of_mysql_are_found() {
    for (sql, trimmed, parameters) in [
        ("SELECT a FROM t WHERE id = ? -- by id", "SELECT a FROM t WHERE id = ?", 1),
        (
            "SELECT '?', \"it\\\"s ?\", `?`, 'it\\'s; ?' /* ? */ FROM t # ?\n;",
            "SELECT '?', \"it\\\"s ?\", `?`, 'it\\'s; ?' /* ? */ FROM t",
            0,
        ),
        ("SELECT 5--3, a$1, $b FROM t", "SELECT 5--3, a$1, $b FROM t", 0),
        ("SELECT a FROM t WHERE id = $1", "SELECT a FROM t WHERE id = $1", 1),
        ("SELECT ??", "SELECT ??", 2),
    ] {
        let statement = SingleStatement::parse(sql, MySql).unwrap();
        assert_eq!((statement.text, statement.parameters.len()), (trimmed, parameters), "{sql}");
    }
}

#[test]
fn unfinished_tokens_end() {
    for sql in
        ["'", "\"", "E'\\", "E'", "$", "$x", "$x$", "$x$ y", "/*", "/* x", "--", "[", "`", "é$", "?", "1.", "1e", "0x"]
    {
        for dialect in ALL {
            let end = Lexer::new(sql, dialect).last().map(|token| token.end());
            assert_eq!(end, Some(sql.len()), "{sql}");
        }
    }
}

proptest! {
    /// Tokens follow one another, are never empty, and nothing but blanks lies between them.
    #[test]
    fn tokens_and_blanks_are_the_whole_text(sql in "[a-e1$?:@#'\"`\\[\\]/*\\\\;. \n\ré-]{0,40}") {
        for dialect in ALL {
            let mut end = 0;
            for token in Lexer::new(&sql, dialect) {
                prop_assert!(!token.text.is_empty());
                prop_assert!(sql[end..token.start].chars().all(|c| c.is_ascii_whitespace()));
                prop_assert_eq!(&sql[token.span()], token.text);
                end = token.end();
            }
            prop_assert!(sql[end..].chars().all(|c| c.is_ascii_whitespace()));
        }
    }
}
