//! The tag byte that opens each frame: one table of byte, name and who sends it.
//! Owns names; never says when a tag is allowed.

/// Who sends a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The client.
    Frontend,
    /// The server.
    Backend,
    /// Either.
    Both,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The byte on the wire.
    pub byte: u8,
    /// The message's name as PostgreSQL's documentation has it.
    pub name: &'static str,
    /// Who sends it.
    pub direction: Direction,
}

macro_rules! tags {
    (
        frontend { $($front:ident $front_byte:literal $front_name:literal;)+ }
        backend { $($back:ident $back_byte:literal $back_name:literal;)+ }
        both { $($both:ident $both_byte:literal $both_name:literal;)+ }
    ) => {
        /// Tags a client sends.
        pub mod frontend {
            $(#[doc = $front_name] pub const $front: u8 = $front_byte;)+
            $(#[doc = $both_name] pub const $both: u8 = $both_byte;)+
        }

        /// Tags a server sends.
        pub mod backend {
            $(#[doc = $back_name] pub const $back: u8 = $back_byte;)+
            $(#[doc = $both_name] pub const $both: u8 = $both_byte;)+
        }

        /// Every tag of protocol 3.
        pub const TABLE: &[Tag] = &[
            $(Tag { byte: $front_byte, name: $front_name, direction: Direction::Frontend },)+
            $(Tag { byte: $back_byte, name: $back_name, direction: Direction::Backend },)+
            $(Tag { byte: $both_byte, name: $both_name, direction: Direction::Both },)+
        ];

        /// True for a tag a client may send.
        #[inline]
        #[must_use]
        pub const fn is_frontend(byte: u8) -> bool {
            matches!(byte, $($front_byte)|+ | $($both_byte)|+)
        }

        /// True for a tag a server may send.
        #[inline]
        #[must_use]
        pub const fn is_backend(byte: u8) -> bool {
            matches!(byte, $($back_byte)|+ | $($both_byte)|+)
        }
    };
}

/// True for a message of a client that is, or begins, a request; the others end one, or are its data.
#[inline]
#[must_use]
pub const fn begins_request(byte: u8) -> bool {
    use frontend::{BIND, CLOSE, DESCRIBE, EXECUTE, FUNCTION_CALL, PARSE, QUERY};
    matches!(byte, QUERY | FUNCTION_CALL | PARSE | BIND | DESCRIBE | EXECUTE | CLOSE)
}

tags! {
    frontend {
        QUERY            b'Q' "Query";
        PARSE            b'P' "Parse";
        BIND             b'B' "Bind";
        DESCRIBE         b'D' "Describe";
        EXECUTE          b'E' "Execute";
        CLOSE            b'C' "Close";
        SYNC             b'S' "Sync";
        FLUSH            b'H' "Flush";
        TERMINATE        b'X' "Terminate";
        COPY_FAIL        b'f' "CopyFail";
        FUNCTION_CALL    b'F' "FunctionCall";
        PASSWORD         b'p' "PasswordMessage";
    }
    backend {
        AUTHENTICATION        b'R' "Authentication";
        KEY_DATA              b'K' "BackendKeyData";
        PARAMETER_STATUS      b'S' "ParameterStatus";
        READY                 b'Z' "ReadyForQuery";
        ERROR                 b'E' "ErrorResponse";
        NOTICE                b'N' "NoticeResponse";
        NOTIFICATION          b'A' "NotificationResponse";
        PARSE_COMPLETE        b'1' "ParseComplete";
        BIND_COMPLETE         b'2' "BindComplete";
        CLOSE_COMPLETE        b'3' "CloseComplete";
        ROW_DESCRIPTION       b'T' "RowDescription";
        PARAMETER_DESCRIPTION b't' "ParameterDescription";
        NO_DATA               b'n' "NoData";
        DATA_ROW              b'D' "DataRow";
        COMMAND_COMPLETE      b'C' "CommandComplete";
        EMPTY_QUERY           b'I' "EmptyQueryResponse";
        PORTAL_SUSPENDED      b's' "PortalSuspended";
        COPY_IN               b'G' "CopyInResponse";
        COPY_OUT              b'H' "CopyOutResponse";
        COPY_BOTH             b'W' "CopyBothResponse";
        FUNCTION_RESULT       b'V' "FunctionCallResponse";
        NEGOTIATE             b'v' "NegotiateProtocolVersion";
    }
    both {
        COPY_DATA b'd' "CopyData";
        COPY_DONE b'c' "CopyDone";
    }
}

/// The name of a client's message, for words about it; `None` for an unknown tag.
#[must_use]
pub fn frontend_name(byte: u8) -> Option<&'static str> {
    name(byte, Direction::Backend)
}

/// The name of a server's message, for words about it; `None` for an unknown tag.
#[must_use]
pub fn backend_name(byte: u8) -> Option<&'static str> {
    name(byte, Direction::Frontend)
}

fn name(byte: u8, never_from: Direction) -> Option<&'static str> {
    TABLE.iter().find(|tag| tag.byte == byte && tag.direction != never_from).map(|tag| tag.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_direction_has_each_byte_once_and_agrees_with_the_table() {
        for byte in 0..=u8::MAX {
            let rows = |never| TABLE.iter().filter(|tag| tag.byte == byte && tag.direction != never).count();
            assert_eq!(rows(Direction::Backend), usize::from(is_frontend(byte)), "frontend {byte}");
            assert_eq!(rows(Direction::Frontend), usize::from(is_backend(byte)), "backend {byte}");
        }
    }

    #[test]
    fn one_byte_may_mean_two_messages() {
        assert_eq!(frontend_name(b'S'), Some("Sync"));
        assert_eq!(backend_name(b'S'), Some("ParameterStatus"));
        assert_eq!(frontend_name(frontend::COPY_DATA), Some("CopyData"));
        assert_eq!(backend_name(backend::COPY_DATA), Some("CopyData"));
        assert_eq!(frontend_name(b'T'), None);
    }
}
