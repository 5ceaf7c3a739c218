-- Dates: the server's clock, in microseconds since the epoch, and the text that is stored for it.

local moment_of_this_call

local function now()
  if not moment_of_this_call then
    local seconds, microseconds = unpack(redis.call('TIME'))
    moment_of_this_call = seconds * 1000000 + microseconds
    --@moved
  end
  return moment_of_this_call
end

-- Python's str() of the naive UTC datetime. The calendar is Howard Hinnant's civil_from_days
-- (https://howardhinnant.github.io/date_algorithms.html#civil_from_days), with remainders in place of math.floor, which
-- takes ten times as long.
local function text_of_second(seconds)
  local rest = seconds % 86400
  local shifted = (seconds - rest) / 86400 + 719468
  local day_of_era = shifted % 146097
  local years = day_of_era - (day_of_era - day_of_era % 1460) / 1460 + (day_of_era - day_of_era % 36524) / 36524
    - (day_of_era == 146096 and 1 or 0)
  local year_of_era = (years - years % 365) / 365
  local day_of_year = day_of_era - 365 * year_of_era - (year_of_era - year_of_era % 4) / 4
    + (year_of_era - year_of_era % 100) / 100
  local months = 5 * day_of_year + 2
  local shifted_month = (months - months % 153) / 153
  local days = 153 * shifted_month + 2
  local day = day_of_year - (days - days % 5) / 5 + 1
  local month = shifted_month < 10 and shifted_month + 3 or shifted_month - 9
  local year = year_of_era + (shifted - day_of_era) / 146097 * 400 + (month <= 2 and 1 or 0)
  return string.format('%04d-%02d-%02d %02d:%02d:%02d', year, month, day, rest / 3600, rest % 3600 / 60, rest % 60)
end

local texts_of_seconds = {}

local function date_text(microseconds)
  local fraction = microseconds % 1000000
  local seconds = (microseconds - fraction) / 1000000
  local text = texts_of_seconds[seconds] or text_of_second(seconds)
  texts_of_seconds[seconds] = text
  if fraction == 0 then
    return text
  end
  return string.format('%s.%06d', text, fraction)
end

local text_of_this_call

local function now_text()
  text_of_this_call = text_of_this_call or date_text(now())
  return text_of_this_call
end

-- The moment of a stored date, or nil if it is not a date: the calendar as above, days_from_civil.
--@rarely
local function parse_date(text)
  local year, month, day, hour, minute, second, fraction =
    string.match(text or '', '^(%d%d%d%d)-(%d%d)-(%d%d) (%d%d):(%d%d):(%d%d)%.?(%d*)$')
  if not year then
    return nil
  end
  local shifted_year = year - (tonumber(month) <= 2 and 1 or 0)
  local era = math.floor(shifted_year / 400)
  local year_of_era = shifted_year - era * 400
  local day_of_year = math.floor((153 * ((month + 9) % 12) + 2) / 5) + day - 1
  local days = era * 146097 + year_of_era * 365 + math.floor(year_of_era / 4) - math.floor(year_of_era / 100)
    + day_of_year - 719468
  local microseconds = tonumber(string.sub(fraction .. '000000', 1, 6))
  return ((days * 24 + hour) * 60 + minute) * 60000000 + second * 1000000 + microseconds
end

-- The score of a moment in a sorted set: seconds, to the microsecond. Whole numbers become a text in half the time, but
-- there is none for infinity.
local function score(microseconds)
  if not (microseconds >= 0 and microseconds < 1e17) then
    return string.format('%.6f', microseconds / 1000000)
  end
  local fraction = microseconds % 1000000
  return string.format('%d.%06d', (microseconds - fraction) / 1000000, fraction)
end

-- The scores of the years 1 and 9999, beyond which Python has no dates.
local FIRST_SECOND, LAST_SECOND = -62135596800, 253402300799

-- The score of a date in the form of Python's isoformat, with ' ' or 'T', in UTC unless it names another offset; nil if
-- it is not a date. Seconds and their fraction are apart, as microseconds are exact up to the year 2255 only.
--@rarely
local function score_of_date(text)
  local day, clock = string.match(text, '^(%d%d%d%d%-%d%d%-%d%d)(.*)$')
  local time, rest = string.match(clock == '' and ' 00:00:00' or clock or '', '^[ T](%d%d:%d%d:%d%d)(.*)$')
  local seconds = time and math.floor(parse_date(day .. ' ' .. time) / 1000000 + 0.5)
  if not time or text_of_second(seconds) ~= day .. ' ' .. time then
    return nil
  end
  local fraction, offset = string.match(rest, '^(%.%d+)(.*)$')
  local sign, hours, minutes, odd = string.match(offset or rest, '^([+-])([0-2]%d):([0-5]%d):?(%d*)$')
  if sign and hours < '24' and (odd == '' or string.find(offset or rest, ':[0-5]%d:[0-5]%d$')) then
    seconds = seconds - tonumber(sign .. (hours * 3600 + minutes * 60 + (tonumber(odd) or 0)))
  elseif (offset or rest) ~= '' and (offset or rest) ~= 'Z' then
    return nil
  end
  return seconds >= FIRST_SECOND and seconds <= LAST_SECOND and string.format('%.6f', seconds + (fraction or 0)) or nil
end

-- When a delay ends, as {at: microseconds, text}: nil is no delay, '+5000000' in five seconds,
-- '4070908800000000 2099-01-01 00:00:00' at that moment. The text is given, too, as numbers of Lua are exact up to the
-- year 2255 only.
local function due_at(delay)
  if not delay then
    return nil
  elseif string.sub(delay, 1, 1) == '+' then
    local at = now() + tonumber(string.sub(delay, 2))
    return {at = at, text = date_text(at)}
  end
  local at, text = string.match(delay, '^(%S+) (.+)$')
  return {at = tonumber(at), text = text}
end
