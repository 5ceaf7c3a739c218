-- Settling: what a job used of a rate is corrected while it runs.

--@include claims
--@include limits

-- What a job that runs needs of the limit of a name; nil if it is not limited by it.
--@rarely
local function need_named(job, name)
  local values = redis.call('HMGET', job.key, '_slots', unpack(job.model.limits.fields))
  table.remove(values, 1)
  for _, need in ipairs(needs_of(job.model, claim_of(job)._queue_key, values)) do
    if need.rule.name == name then return need end
  end
end

-- Corrects what a job used of a rate: a smaller amount than before is given back, a larger one is a debt. Returns false if it
-- used none.
--@rarely
local function settle_rate(job, name, amount)
  local need, lines, is_done = job.model.limits and need_named(job, name), {}, false
  for line in string.gmatch(need and claim_of(job)._slots or '', '[^\n]+') do
    local weight, interval, limit = string.match(line, '^r (%S+) (%S+) (.*)$')
    if limit == need.limit then
      use_rate(limit, rate_used_until(limit) + (amount - weight) * interval)
      line, is_done = string.format('r %s %s %s', amount, interval, limit), true
    end
    lines[#lines + 1] = line
  end
  if is_done then
    redis.call('HSET', job.key, '_slots', table.concat(lines, '\n'))
    let_lanes_go(need.limit)
  end
  return is_done
end
