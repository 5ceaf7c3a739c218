-- Slots: what a running job holds of the limits of its class. Its field `_slots` has a line for each: 's <limit>' if it is
-- one of so many that may run, 'r <weight> <interval> <limit>' if it used something of a rate. The slots of a limit are a
-- sorted set of idents, by the end of the lease and a quarter: if no worker renews the lease, nor rescues the job, the slot
-- lapses by itself.

--@include clock
--@include lanes

-- The shortest time between the end of a lease and that of a slot: microseconds. The job has to be rescued before another
-- one takes its place.
local SLOT_MARGIN = 1000000

--@rarely
local function slot_end(lease)
  return score(now() + lease * 1000000 + math.max(lease * 250000, SLOT_MARGIN))
end

-- The limits of which a job holds a slot, given its field.
--@rarely
local function slots_in(text)
  local limits = {}
  for limit in string.gmatch('\n' .. text, '\ns ([^\n]+)') do limits[#limits + 1] = limit end
  return limits
end

-- Gives back what a job holds. What it used of a rate is gone. Keys of lanes of a wrong type do not keep a job from its end.
--@rarely
local function free_slots(ident, text)
  for _, limit in ipairs(slots_in(text)) do
    redis.pcall('ZREM', limit .. ':slots', ident)
    pcall(let_lanes_go, limit)
  end
end

-- Extends the slots of a job with its lease; returns false if one has lapsed, and another job has it by now.
--@rarely
local function extend_slots(ident, text, lease)
  local limits, ends, moment = slots_in(text), slot_end(lease), score(now())
  for _, limit in ipairs(limits) do
    local own = redis.pcall('ZSCORE', limit .. ':slots', ident)
    local is_over = type(own) ~= 'string' or tonumber(own) <= tonumber(moment)
    if is_over and redis.pcall('ZCOUNT', limit .. ':slots', '(' .. moment, '+inf') ~= 0 then return false end
  end
  for _, limit in ipairs(limits) do redis.pcall('ZADD', limit .. ':slots', ends, ident) end
  return true
end
