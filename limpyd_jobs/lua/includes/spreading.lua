-- Spreading: many jobs get one moment after the other, so that they are not all run at once. These names mean the same
-- everywhere:
--   interval   microseconds from one moment to the next, also less than one; or none
--   turns      the key with the next moment: who does the same again, because a call was interrupted, goes on there
--   spread     none, or in how many seconds all are due: kept with the interval until end_turns, for who goes on

--@include clock

local LAST_MOMENT = LAST_SECOND * 1000000

-- The moment that the key has, and the key of the last job that waits for its moment, if it is known; 0 if there is none,
-- if that job does not wait any more, or if another program wrote something else.
local function kept_turn()
  local kept = redis.pcall('GET', request.turns)
  kept = string.gsub(type(kept) == 'string' and kept or '', '@[^ ]*', '', 1)
  local text, last = string.match(kept, '^(%d+%.?%d*) ?(.*)$')
  local at = tonumber(text)
  if not at or at >= 4 * LAST_MOMENT then return 0 end
  if last ~= '' and redis.pcall('HGET', last, 'status') ~= STATUSES.DELAYED then return 0 end
  return at, last
end

-- The first moment: not before `due`, if given, nor before the one that the key has; and the job of kept_turn.
local function first_turn(due)
  local kept, last = kept_turn()
  return math.max(now(), due and due.at or 0, kept), last
end

local function turn_after(at)
  return at + tonumber(request.interval)
end

-- A moment as due_at returns it; nil beyond the year 9999.
local function turn_at(at)
  local whole = math.floor(at)
  return at < LAST_MOMENT and {at = whole, text = date_text(whole)} or nil
end

-- Keeps the next moment until it has passed, with the key of the last job that waits for its moment, if it is known. A
-- spread and its interval are kept beside it, for as long as the spread lasts.
local function keep_turn(at, last)
  local spread = request.spread and '@' .. request.spread .. '/' .. request.interval or ''
  local text = string.format('%.3f', at) .. spread .. ((last or '') ~= '' and ' ' .. last or '')
  local lasts = math.max(1, (at - now()) / 1000, (tonumber(request.spread) or 0) * 1000)
  redis.call('SET', request.turns, text, 'PX', string.format('%.0f', lasts))
end
