-- Handlers: jobs that handle the last failure of another one, as its class asks for.

--@include places
--@include quarantine

-- Makes the job that handles a failure, in a queue whose waiting list was probed, given its model and its fields as JSON.
-- If that fails, the other job fails all the same: returns why.
--@rarely
local function add_handler(queue, model_json, fields_json)
  local is_done, failure = pcall(function()
    local model, fields = model_of(model_json), cjson.decode(fields_json)
    fields.added = now_text()
    local pk = new_pk(model)
    create(model, pk, placed(fields, redis.call('HGET', queue .. ':hash', 'priority') or '0', nil, queue))
    push(queue, model.path .. ':' .. pk, fields.status)
  end)
  return not is_done and text_of_error(failure) or nil
end
