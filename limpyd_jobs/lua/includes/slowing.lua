-- Slowing: a job whose code puts it back in its queue again and again, each time to be run at once.

--@include clock

-- How often in a row that is done at once; then how long the job waits at least the first time, and at most: seconds. The
-- wait is twice as long each time.
local AT_ONCE, FIRST_WAIT, LONGEST_WAIT = 10, 0.1, 60

-- Counts, among the changes of a job, how often in a row it came back at once, given the count so far and the moment that
-- its code asked for, if any. Returns the moment at which it is due instead, as due_at does, and for how many seconds it
-- waits; nil if it need not wait longer.
--@rarely
local function slow_down(changes, returns, asked)
  if asked and asked.at >= now() + FIRST_WAIT * 1000000 then
    if returns then changes._quick_returns = false end
    return nil
  end
  local number = (tonumber(returns) or 0) + 1
  changes._quick_returns = string.format('%d', number)
  if number <= AT_ONCE then return nil end
  local seconds = math.min(FIRST_WAIT * 2 ^ math.min(number - AT_ONCE - 1, 20), LONGEST_WAIT)
  local at = now() + math.floor(seconds * 1000000)
  return {at = at, text = date_text(at), seconds = string.format('%g', seconds)}
end
