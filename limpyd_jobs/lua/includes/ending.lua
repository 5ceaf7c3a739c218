-- Ending: ends the claim on a job, and makes the next one in the same call, if the request has `lists`, `next_token`,
-- `lease` and `classes`. For `registry` see add.lua.

--@include registry
--@include repeated_claims

-- The next claim; nil without one. `is_repeated` if this call may have made it before.
local function claim_next(is_repeated)
  if not request.next_token then
    return nil
  end
  write_classes(request.registry)
  local lists, classes = lists_from(request.lists), classes_from(request.classes)
  local found = is_repeated and claimed_with(lists, request.next_token, classes)[1]
    or claim_first(lists, request.next_token, tonumber(request.lease), classes)
  return not found.err and found.outcome ~= 'nothing' and found.outcome ~= 'sorted' and delivery(found) or nil
end

-- The reply to a caller that ended its claim already, and asks again, as the first reply was lost; nil for others. The
-- next claim may be on the same job, once more. `outcome` is used if the job was put back in a queue. `statuses` are
-- the ones that the caller may give to the job: the reply tells another status. `failure` is as below.
--@rarely
local function ended_before(job, token, outcome, statuses, failure)
  local last_claim, status, finish, delayed_until, held = unpack(redis.call(
    'HMGET', job.key, '_last_claim', 'status', 'end', 'delayed_until', '_claim_token'))
  local is_next = request.next_token and held == request.next_token
  if not token or last_claim ~= token and not is_next then
    return nil
  end
  local is_back, is_failed = status == STATUSES.WAITING or status == STATUSES.DELAYED or is_next, status == STATUSES.ERROR
  return answer(is_back and outcome or is_failed and 'error' or 'done', {
    ['end'] = finish or nil, delayed_until = is_back and delayed_until or nil, prefetched = claim_next(true),
    status = not is_next and not string.find(statuses, status or '', 1, true) and status or nil,
    failure = failure,
  })
end

-- The reply of every script that ends a claim; for one that makes an error in the same step, `failure` says what became
-- of that, and `unhandled` why the job that handles it could not be made.
local function ended(outcome, finish, delayed_until, slowed, failure, unhandled)
  return answer(outcome, {
    ['end'] = finish, delayed_until = delayed_until, slowed = slowed, failure = failure, unhandled = unhandled,
    prefetched = claim_next(),
  })
end
