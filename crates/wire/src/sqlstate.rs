//! The SQLSTATEs a pooler sends or acts upon, by name. Source: PostgreSQL documentation, appendix
//! "PostgreSQL Error Codes". Never a list of all there are: a server's other codes pass through unread.

macro_rules! states {
    ($($constant:ident $code:literal $meaning:literal;)+) => {
        $(#[doc = $meaning] pub const $constant: &str = $code;)+

        #[cfg(test)]
        const ALL: &[&str] = &[$($code),+];
    };
}

states! {
    CANNOT_CONNECT                 "08001" "sqlclient_unable_to_establish_sqlconnection: the server cannot be reached.";
    CONNECTION_FAILURE             "08006" "connection_failure: the connection broke.";
    TRANSACTION_RESOLUTION_UNKNOWN "08007" "transaction_resolution_unknown: the connection broke while a commit was under way.";
    PROTOCOL_VIOLATION             "08P01" "protocol_violation: the peer sent what the protocol does not allow here.";
    FEATURE_NOT_SUPPORTED          "0A000" "feature_not_supported";
    INVALID_PARAMETER              "22023" "invalid_parameter_value";
    READ_ONLY_TRANSACTION          "25006" "read_only_sql_transaction";
    IDLE_IN_TRANSACTION_TIMEOUT    "25P03" "idle_in_transaction_session_timeout";
    TRANSACTION_TIMEOUT            "25P04" "transaction_timeout";
    UNDEFINED_CURSOR               "34000" "invalid_cursor_name: no portal of that name.";
    UNDEFINED_PREPARED             "26000" "invalid_sql_statement_name: no prepared statement of that name.";
    INVALID_AUTHORIZATION          "28000" "invalid_authorization_specification";
    INVALID_PASSWORD               "28P01" "invalid_password";
    INVALID_CATALOG_NAME           "3D000" "invalid_catalog_name: no such database.";
    INVALID_SCHEMA_NAME            "3F000" "invalid_schema_name";
    SERIALIZATION_FAILURE          "40001" "serialization_failure; on a standby also: a conflict with what it replays.";
    INSUFFICIENT_PRIVILEGE         "42501" "insufficient_privilege";
    UNDEFINED_TABLE                "42P01" "undefined_table";
    UNDEFINED_COLUMN               "42703" "undefined_column";
    UNDEFINED_OBJECT               "42704" "undefined_object";
    UNDEFINED_FUNCTION             "42883" "undefined_function";
    SYNTAX_ERROR                   "42601" "syntax_error";
    DUPLICATE_PREPARED             "42P05" "duplicate_prepared_statement";
    OUT_OF_MEMORY                  "53200" "out_of_memory";
    TOO_MANY_CONNECTIONS           "53300" "too_many_connections";
    WARNING                        "01000" "warning";
    CONFIGURATION_LIMIT            "53400" "configuration_limit_exceeded";
    UNTRANSLATABLE                 "22P05" "untranslatable_character";
    PROGRAM_LIMIT                  "54000" "program_limit_exceeded";
    DEADLOCK_DETECTED              "40P01" "deadlock_detected";
    OBJECT_NOT_IN_PREREQUISITE_STATE "55000" "object_not_in_prerequisite_state: it is closed to this for now.";
    LOCK_NOT_AVAILABLE             "55P03" "lock_not_available";
    QUERY_CANCELED                 "57014" "query_canceled";
    ADMIN_SHUTDOWN                 "57P01" "admin_shutdown";
    CRASH_SHUTDOWN                 "57P02" "crash_shutdown";
    CANNOT_CONNECT_NOW             "57P03" "cannot_connect_now: the server is starting, stopping or recovering.";
    DATABASE_DROPPED               "57P04" "database_dropped";
    CONFIG_FILE_ERROR              "F0000" "config_file_error";
    INTERNAL_ERROR                 "XX000" "internal_error";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_five_digits_or_capitals_and_all_different() {
        let mut seen = std::collections::BTreeSet::new();
        for code in ALL {
            assert_eq!(code.len(), 5, "{code}");
            assert!(code.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase()), "{code}");
            assert!(seen.insert(code), "{code} twice");
        }
    }
}
