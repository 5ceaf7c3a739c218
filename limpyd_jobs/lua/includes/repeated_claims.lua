-- Repeated: the jobs that were claimed by a call that is sent once more.

--@include claim_first

-- The number of a claim among the claims of a call, or nil; 0 if it is the only one.
--@rarely
local function number_among(token, other)
  return other == token and 0 or string.sub(other, 1, #token + 1) == token .. '/' and tonumber(string.sub(other, #token + 2))
end

-- The jobs that were claimed with that token, by a call whose reply was lost, in the order of their claims.
--@rarely
local function claimed_with(lists, token, classes)
  local found = {}
  for _, key in ipairs(lists(math.huge)) do
    local base = string.sub(key, 1, -9)
    for _, ident in ipairs(redis.call('ZRANGE', base .. ':_running', 0, -1)) do
      local path = parse_ident(ident)
      local job = path and classes[path] and job_of(classes[path], ident)
      local held, identifier, start, tries, job_timeout, queue_key, delayed_until, policy, uncounted_tries, added,
        requeued_at, retry_for, failing_since, cursor, rescues, flow = unpack(job and redis.call(
          'HMGET', job.key, '_claim_token', 'identifier', 'start', 'tries', '_job_timeout', '_queue_key',
          'delayed_until', '_retry_policy', '_uncounted_tries', 'added', '_requeued_at', '_retry_for',
          '_failing_since', '_cursor', '_rescues', '_flow') or NOTHING)
      -- version 2 may have left a lease of it in another queue
      if held and queue_key == base and number_among(token, held) then
        local name, priority = unpack(redis.call('HMGET', base .. ':hash', 'name', 'priority'))
        found[#found + 1] = {
          outcome = 'claimed', key = key, ident = ident, token = held, status = STATUSES.WAITING,
          identifier = identifier or '', queue_name = name or '', queue_priority = priority or '',
          start = start or '', tries = tries or '',
          job_timeout = job_timeout or '', queues = last_queue(base), delayed_until = delayed_until or nil,
          beside = rescues and is_one_of_several(held) and suspects_beside(rescues) or nil,
          flow = flow and '1' or nil,
          cursor = cursor and cursor_to_give(cursor) or nil,
          retry = retry_of(policy, uncounted_tries, added, requeued_at, retry_for, failing_since),
        }
      end
    end
  end
  table.sort(found, function(a, b) return number_among(token, a.token) < number_among(token, b.token) end)
  return found
end
