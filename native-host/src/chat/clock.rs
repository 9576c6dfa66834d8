//! The time as templates ask for it: `strftime_now`, which in transformers is `datetime.now().strftime`.

use std::fmt;

use strftime::Time;

/// What a text of one call may hold: directives can ask for any width.
const LONGEST: usize = 4096;

/// A date and a time of day, without a zone, as Python's naive `datetime`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalTime {
    pub year: i32,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    pub hour: u8,
    pub minute: u8,
    pub second: u8,
    pub nanoseconds: u32,
    /// Days since Sunday.
    pub day_of_week: u8,
    /// Seconds since 1970 in UTC.
    pub unix: i64,
}

impl LocalTime {
    /// What the clock on the wall shows.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn now() -> Self {
        let now = jiff::ZonedDateTime::now();
        LocalTime {
            year: now.year().into(),
            month: now.month().unsigned_abs(),
            day: now.day().unsigned_abs(),
            hour: now.hour().unsigned_abs(),
            minute: now.minute().unsigned_abs(),
            second: now.second().unsigned_abs(),
            nanoseconds: now.subsec_nanosecond().unsigned_abs(),
            day_of_week: now.weekday().to_sunday_zero_offset().unsigned_abs(),
            unix: now.timestamp().as_second(),
        }
    }

    /// What the clock on the wall shows.
    #[cfg(target_arch = "wasm32")]
    pub fn now() -> Self {
        let now = js_sys::Date::new_0();
        LocalTime {
            year: now.get_full_year() as i32,
            month: now.get_month() as u8 + 1,
            day: now.get_date() as u8,
            hour: now.get_hours() as u8,
            minute: now.get_minutes() as u8,
            second: now.get_seconds() as u8,
            nanoseconds: now.get_milliseconds() * 1_000_000,
            day_of_week: now.get_day() as u8,
            unix: (now.get_time() / 1000.0).floor() as i64,
        }
    }

    /// Python's `strftime`; what it does not know stays as it is.
    ///
    /// # Errors
    /// A text of more than 4 KiB.
    pub fn strftime(&self, format: &str) -> Result<String, strftime::Error> {
        let mut rest = format;
        let mut posix = String::new();
        // Python's own: microseconds, and nothing for the zone that a naive time lacks.
        while let Some(at) = rest.find('%') {
            let directive = rest[at + 1..].chars().next();
            let end = at + 1 + directive.map_or(0, char::len_utf8);
            match directive {
                Some('f') => posix += &format!("{}{:06}", &rest[..at], self.nanoseconds / 1000),
                Some('z' | 'Z') => posix += &rest[..at],
                None => posix += &format!("{}%%", &rest[..at]),
                Some(_) => posix += &rest[..end],
            }
            rest = &rest[end..];
        }
        posix += rest;
        let mut out = Bounded(String::new());
        strftime::fmt::strftime(self, &posix, &mut out)?;
        Ok(out.0)
    }
}

impl Time for LocalTime {
    fn year(&self) -> i32 {
        self.year
    }

    fn month(&self) -> u8 {
        self.month
    }

    fn day(&self) -> u8 {
        self.day
    }

    fn hour(&self) -> u8 {
        self.hour
    }

    fn minute(&self) -> u8 {
        self.minute
    }

    fn second(&self) -> u8 {
        self.second
    }

    fn nanoseconds(&self) -> u32 {
        self.nanoseconds
    }

    fn day_of_week(&self) -> u8 {
        self.day_of_week
    }

    fn day_of_year(&self) -> u16 {
        let leap = self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0);
        let days = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let before: u16 = days[..usize::from(self.month - 1)].iter().sum();
        before + u16::from(self.day)
    }

    fn to_int(&self) -> i64 {
        self.unix
    }

    fn is_utc(&self) -> bool {
        false
    }

    fn utc_offset(&self) -> i32 {
        0
    }

    fn time_zone(&self) -> &str {
        ""
    }
}

/// A text that refuses to grow without end.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: LocalTime = LocalTime {
        year: 2024,
        month: 7,
        day: 5,
        hour: 9,
        minute: 3,
        second: 1,
        nanoseconds: 1_234_567,
        day_of_week: 5,
        unix: 1_720_170_181,
    };

    #[test]
    fn times_are_pythons() {
        let cases = [
            ("%d %b %Y", "05 Jul 2024"),
            ("%Y-%m-%d %H:%M:%S", "2024-07-05 09:03:01"),
            ("%A, %B %-d", "Friday, July 5"),
            ("%I:%M %p %j %y %%", "09:03 AM 187 24 %"),
            ("%f %%f %z|%Z|", "001234 %f ||"),
            ("%U %W %w %u", "26 27 5 5"),
            ("%J é", "%J é"),
            ("100%", "100%"),
        ];
        for (format, wanted) in cases {
            assert_eq!(TIME.strftime(format).unwrap(), wanted, "{format}");
        }
    }

    #[test]
    fn hostile_formats_end() {
        for format in ["%999999999d", "%2147483647Y", "%99999999999999999999d", &"%A".repeat(5000)] {
            if let Ok(text) = TIME.strftime(format) {
                assert!(text.len() <= LONGEST, "{format}");
            }
        }
    }

    #[test]
    fn the_clock_is_read() {
        let now = LocalTime::now();
        assert!(now.year >= 2024 && (1..=12).contains(&now.month) && now.unix > TIME.unix, "{now:?}");
    }
}
