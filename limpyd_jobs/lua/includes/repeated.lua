-- Repeated: what was claimed by a call that is sent once more.

--@include taking

-- Which one of the claims of a call that is, or nil; 0 if it is the only one.
local function number_among(token, other)
  return other == token and 0 or string.sub(other, 1, #token + 1) == token .. '/' and tonumber(string.sub(other, #token + 2))
end

-- The jobs that were claimed with that token, by a call whose reply was lost, as claim_several returns them, and in its
-- order.
local function all_claimed_with(lists, token, classes)
  local found = {}
  for _, key in ipairs(lists(math.huge)) do
    local base = string.sub(key, 1, -9)
    for _, ident in ipairs(redis.call('ZRANGE', base .. ':_running', 0, -1)) do
      local path = parse_ident(ident)
      local job = path and classes[path] and job_of(classes[path], ident)
      local hash = job and redis.call(
        'HMGET', job.key, '_claim_token', 'identifier', 'start', 'tries', '_job_timeout', unpack(RETRY_FIELDS))
      if hash and hash[1] and number_among(token, hash[1]) then
        local queue = redis.call('HMGET', base .. ':hash', 'name', 'priority')
        found[#found + 1] = {hash[1], {
          'claimed', key, ident, 'w', hash[2] or '', queue[1] or '', queue[2] or '', hash[3] or '', hash[4] or '',
          hash[5] or '', retry_of(hash, 6), last_queue(base), {},
        }}
      end
    end
  end
  table.sort(found, function(a, b) return number_among(token, a[1]) < number_among(token, b[1]) end)
  return found
end

-- The one job that was claimed with that token, by a call whose reply was lost; nil if there is none.
local function claimed_with(lists, token, classes)
  local found = all_claimed_with(lists, token, classes)[1]
  return found and found[2]
end
