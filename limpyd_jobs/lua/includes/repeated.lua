-- Repeated: the jobs that were claimed by a call that is sent once more.

--@include claim_next

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
      local hash = job and redis.call(
        'HMGET', job.key, '_claim_token', 'identifier', 'start', 'tries', '_job_timeout', '_queue_key',
        'delayed_until', '_retry_policy', '_uncounted_tries', 'added', '_requeued_at', '_retry_for', '_failing_since',
        '_cursor', '_rescues')
      -- version 2 may have left a lease of it in another queue
      if hash and hash[1] and hash[6] == base and number_among(token, hash[1]) then
        local queue = redis.call('HMGET', base .. ':hash', 'name', 'priority')
        found[#found + 1] = {
          outcome = 'claimed', key = key, ident = ident, token = hash[1], status = STATUSES.WAITING, identifier = hash[2] or '',
          queue_name = queue[1] or '', queue_priority = queue[2] or '', start = hash[3] or '', tries = hash[4] or '',
          job_timeout = hash[5] or '', queues = last_queue(base), delayed_until = hash[7] or nil,
          beside = hash[15] and is_one_of_several(hash[1]) and suspects_beside(hash[15]) or nil,
          cursor = hash[14] and cursor_to_give(hash[14]) or nil,
          retry = retry_of(hash[8], hash[9], hash[10], hash[11], hash[12], hash[13]),
        }
      end
    end
  end
  table.sort(found, function(a, b) return number_among(token, a.token) < number_among(token, b.token) end)
  return found
end
