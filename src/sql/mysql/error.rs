//! What an error of the server means. The SQL state is too coarse for that: most errors have HY000.

use crate::sql::SqlError;

/// By number and SQL state.
pub(in crate::sql) fn from_number(number: u16, state: &str, message: String) -> SqlError {
    match number {
        // Lock wait timeout, KILL QUERY, max_statement_time of MariaDB, max_execution_time of MySQL, NOWAIT.
        1205 | 1317 | 1969 | 3024 | 3572 => SqlError::Timeout(message),
        // Too many connections (of all, of this user, in a time), no thread or memory for another, a blocked or refused
        // host.
        1040 | 1041 | 1129 | 1130 | 1135 | 1203 | 1226 | 1037 | 1038 => SqlError::Unavailable(message),
        // Access denied (to the server, to the database), no such database, an expired or unusable password, secure
        // transport demanded.
        1044 | 1045 | 1049 | 1524 | 1820 | 1862 | 3118 | 3159 | 4151 => SqlError::Unavailable(message),
        // A server that shuts down or starts, a connection that was killed or idle too long, broken packets.
        1053 | 1077 | 1079 | 1080 | 1152 | 1153 | 1154..=1161 | 1184 | 1189 | 1190 | 1927 | 3169 | 4031 => {
            SqlError::Unavailable(message)
        }
        // A full or failing disk, a crashed table, a deadlock, a Galera node that is not in its cluster.
        3 | 5 | 14 | 28 | 1015 | 1021 | 1023 | 1024 | 1026 | 1030 | 1034 | 1035 | 1047 | 1114 | 1180 | 1194 | 1195
        | 1213 => SqlError::Unavailable(message),
        // No such table, column, routine or prepared statement; a view or a definition that has changed.
        1051 | 1054 | 1146 | 1243 | 1305 | 1356 | 1412 | 1615 => SqlError::Invalid { message, stale: true },
        // Classes: connection exception, invalid authorization.
        _ if state.starts_with("08") || state.starts_with("28") => SqlError::Unavailable(message),
        _ => SqlError::invalid(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_tell_an_outage_from_a_query_that_does_not_fit() {
        let error = |number, state| from_number(number, state, "x".into());
        for (number, state) in [
            (1040, "08004"),
            (1045, "28000"),
            (1049, "42000"),
            (1047, "08S01"),
            (1053, "08S01"),
            (1927, "70100"),
            (1213, "40001"),
        ] {
            assert!(error(number, state).is_unavailable(), "{number}");
        }
        for (number, state) in [(1146, "42S02"), (1054, "42S22")] {
            assert!(error(number, state).is_stale(), "{number}");
        }
        for (number, state) in [(1969, "70100"), (3024, "HY000"), (1205, "HY000"), (1317, "70100")] {
            assert_eq!(error(number, state), SqlError::Timeout("x".into()), "{number}");
        }
        // A syntax error, and collations that can't be compared: a retry would not help.
        for (number, state) in [(1064, "42000"), (1267, "HY000"), (1142, "42000")] {
            assert_eq!(error(number, state), SqlError::invalid("x"), "{number}");
        }
    }
}
