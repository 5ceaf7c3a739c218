-- Claims: who may run a job, for how long, and what is next.

--@include records

-- Splits an ident, 'myapp.jobs.MyJob:12', in its class path and pk; nil if it is none.
local function parse_ident(ident)
  return string.match(ident, '^([^:]+%.[^:.]+):([^:]+)$')
end

-- The models of the classes the caller knows, as JSON by class path, from an index of ARGV on.
local function classes_from(first)
  local classes = {}
  for i = first, #ARGV, 2 do
    classes[ARGV[i]] = ARGV[i + 1]
  end
  return classes
end

local function job_of(model, ident)
  local _, pk = parse_ident(ident)
  model = cjson.decode(model)
  return {model = model, pk = pk, ident = ident, key = hash_key(model, pk)}
end

-- The reply to a caller who may not end the claim on a job, as it does not hold it, or the job was deleted; nil to
-- one who may. An empty token stands for a job that nobody claimed.
local function refusal(job, token)
  local held = redis.call('HGET', job.key, 'claim_token') or ''
  if held == '' and redis.call('EXISTS', job.key) == 0 then
    return {'gone'}
  elseif held ~= token then
    return {'refused'}
  end
end

-- Ends a claim: the lease here, the token with the changes of the hash.
local function end_claim(base, ident, changes)
  redis.call('ZREM', base .. ':running', ident)
  changes.claim_token = false
  return changes
end

-- Claims a job that was taken from a waiting list, if it waits indeed. The reply is documented in claim.lua.
local function claim(key, ident, pk, model, token, lease)
  local base = string.sub(key, 1, -9)
  local queue = redis.call('HMGET', base .. ':hash', 'name', 'priority')
  local hash = redis.call('HMGET', hash_key(model, pk), 'status', 'identifier', 'tries')
  local status, identifier, tries = hash[1], hash[2] or '', hash[3]
  if not status and redis.call('EXISTS', hash_key(model, pk)) == 0 then
    return {'gone', key, ident}
  end
  if status ~= 'w' then
    return {'found', key, ident, status or '', identifier, queue[1] or '', queue[2] or ''}
  end
  local moment = now()
  local start = date_text(moment)
  tries = string.format('%d', (tonumber(tries) or 0) + 1)
  update(model, pk, {status = 'r', start = start, tries = tries, queued = '1', claim_token = token})
  redis.call('ZADD', base .. ':running', score(moment + lease * 1000000), ident)
  return {'claimed', key, ident, status, identifier, queue[1] or '', queue[2] or '', start, tries, reindex}
end

-- Claims the first job of the first waiting list that has one.
local function claim_first(keys, token, lease, classes)
  for _, key in ipairs(keys) do
    local ident = redis.pcall('LINDEX', key, 0)
    if type(ident) == 'string' then
      local path, pk = parse_ident(ident)
      if not path then
        redis.call('LPOP', key)
        return {'garbage', key, ident}
      elseif not classes[path] then
        return {'unknown', key, ident}
      end
      redis.call('LPOP', key)
      return claim(key, ident, pk, cjson.decode(classes[path]), token, lease)
    end
  end
  return {'nothing'}
end

-- The claim that a finishing worker asks for in the same call, with ARGV from an index on: token, lease, classes.
local function claim_next(first)
  if #KEYS == 0 then
    return {'nothing'}
  end
  return claim_first(KEYS, ARGV[first], tonumber(ARGV[first + 1]), classes_from(first + 2))
end

-- The reply of every script that ends a claim; `first` is where the next claim begins in ARGV.
local function ended(outcome, finish, delayed_until, first)
  local changes = reindex
  reindex = {}
  return {outcome, finish, delayed_until, changes, claim_next(first)}
end
