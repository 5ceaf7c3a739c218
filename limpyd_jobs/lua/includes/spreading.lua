-- Spreading: many jobs get one moment after the other, so that they are not all run at once. These names mean the same
-- everywhere:
--   interval   microseconds from one moment to the next, also less than one; or none
--   turns      the key with the next moment: who does the same again, because a call was interrupted, goes on there

--@include clock

local LAST_MOMENT = LAST_SECOND * 1000000

-- The moment that the key has; 0 if there is none, or another program wrote something else.
local function kept_turn()
  local kept = redis.pcall('GET', request.turns)
  local at = type(kept) == 'string' and string.find(kept, '^%d+%.?%d*$') and tonumber(kept)
  return at and at < 4 * LAST_MOMENT and at or 0
end

-- The first moment: not before `due`, if given, nor before the one that the key has.
local function first_turn(due)
  return math.max(now(), due and due.at or 0, kept_turn())
end

local function turn_after(at)
  return at + tonumber(request.interval)
end

-- A moment as due_at returns it; nil beyond the year 9999.
local function turn_at(at)
  local whole = math.floor(at)
  return at < LAST_MOMENT and {at = whole, text = date_text(whole)} or nil
end

-- Keeps the next moment until it has passed.
local function keep_turn(at)
  redis.call('SET', request.turns, string.format('%.3f', at), 'PX', string.format('%.0f', math.max(1, (at - now()) / 1000)))
end
